"""Tables of `tuner explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from results.records import PARTS
from search_spaces.simulated_acceptance import NOTICE
from tuner.analysis.bounds import gain_if_shorter
from tuner.analysis.knob_effects import Limit
from tuner.analysis.mean_cycle import part_name
from tuner.formatting import describe
from tuner.reports.console import fold, print_table, reader, say
from tuner.reports.explain_text import (
    MANY_TIMES,
    MUCH_SHORTER,
    assumptions,
    describe_bound,
    describe_gains,
    knob_name,
    summary,
)
from tuner.reports.text import WIDE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from results.records import BatchCycles, PartTime
    from tuner.analysis.explanation import Explanation, PointExplanation
    from tuner.analysis.knob_effects import KnobEffect

_MOST_BAR = 40
"""Columns of a bar that stands for a whole cycle."""

_LEAST_BAR = 8
_BESIDE_BAR = 56
"""Columns of everything else in the lines with bars."""

_CUT = 12
"""Columns of what a shorter part would buy, which is left out where it is narrow."""

_NARROW = 72
"""Columns up to which a knob's name may take two lines."""

_MOST_BATCHES = 3
"""Batch sizes whose parts are shown: those that took most of the time."""

_SOURCES = {"plugin": "the plugin's clock", "device_timer": "SGLang's device timer"}


def render(explanation: Explanation) -> None:
    """Print an explanation to stdout."""
    console = reader()
    report, trial = explanation.report, explanation.trial
    mark = ""
    if report.study.simulated:
        mark = ", every figure simulated"
        mark += f" with the profile {report.profile}" if report.profile is not None else ""
    mark += f"; {NOTICE}" if report.simulated_acceptance else ""
    say(console, f"study {report.study.name}, trial {trial.number}{mark}", style="bold")
    say(console, f"{describe(trial.configuration, report.fixed)}: {explanation.choice.why}")
    for note in explanation.choice.notes:
        say(console, f"note: {note}")
    for point in explanation.points:
        _bars(console, explanation, point)
    say(console, "")
    for sentence in summary(explanation):
        _sentence(console, sentence)
    if explanation.knob_effects:
        print_table(console, _knob_effects(explanation, console.width))
    else:
        say(console, "")
    for point in explanation.points:
        _batches(console, explanation, point)
    say(console, "Assumed:")
    for assumption in assumptions(explanation):
        _sentence(console, assumption)


def _bars(console: Console, explanation: Explanation, point: PointExplanation) -> None:
    mark = "simulated " if point.measurement.simulated else ""
    speculates = explanation.trial.configuration.speculation.enabled
    cycle, shares = point.cycle, point.cycle.shares
    say(console, "")
    what = "a cycle takes"
    if not cycle.rest_known:
        what = "the forwards of a cycle take"
    say(
        console,
        f"{point.measurement.point.name}: {what} {1000 * cycle.total_s:.2f} {mark}ms "
        f"(mean of {cycle.count}, by {_SOURCES[point.times.source]})",
        style="bold",
    )
    narrow = console.width < _BESIDE_BAR + 2 * _LEAST_BAR
    room = console.width - _BESIDE_BAR + (_CUT if narrow else 0)
    width = max(_LEAST_BAR, min(_MOST_BAR, room))
    sign = "#" if console.options.ascii_only else "\u2588"
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True, width=width)
    headers = ("share", "ms", "if free", *(() if narrow else (f"if {MUCH_SHORTER:.0%} less",)))
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    names = [n for n in point.told if cycle.parts[n] > 0 or (speculates and n != "rest")]
    for name in sorted(names, key=lambda name: -shares[name]):
        share = shares[name]
        cells = (
            f"  {part_name(name, speculates=speculates)}",
            sign * round(share * width),
            f"{share:.1%}",
            f"{1000 * cycle.parts[name]:.3f}",
            describe_bound(point.instant[name]),
            f"{gain_if_shorter(share, MUCH_SHORTER):+.1%}",
        )
        table.add_row(
            *cells[: len(headers) + 2],
            style="bold" if name == cycle.dominant else "",
        )
    print_table(console, table)
    for note in point.notes:
        _sentence(console, note, "  note: ")


def _knob_effects(explanation: Explanation, width: int) -> Table:
    """Table of the study's knobs with the bounds at each operating point."""
    # In a narrow terminal, whole names matter more than space between columns.
    table = Table(box=SIMPLE_HEAD, padding=(0, 1) if width >= WIDE else 0)
    table.add_column("knob", no_wrap=width > _NARROW, overflow="fold")
    table.add_column("at most", justify="right", no_wrap=True)
    table.add_column("launch?", no_wrap=True)
    table.add_column("acts on", overflow="fold")
    words = {True: "yes", False: "no", None: "?"}
    for knob_effect in explanation.knob_effects:
        done = explanation.is_done(knob_effect)
        bounds = " / ".join(
            describe_bound(p.bounds.get(knob_effect.name)) for p in explanation.points
        )
        no_use = knob_effect.name in explanation.seen and _says_nothing(explanation, knob_effect)
        cells = (
            knob_name(knob_effect),
            "-" if done or no_use else bounds,
            "done" if done else words[explanation.is_worth(knob_effect)],
            "; ".join((knob_effect.how, *_beside(explanation, knob_effect, no_use=no_use))),
        )
        table.add_row(*map(Text, cells))
    return table


def _says_nothing(explanation: Explanation, knob_effect: KnobEffect) -> bool:
    """Whether the bounds of a knob are too large to be useful."""
    bounds = [point.bounds.get(knob_effect.name) for point in explanation.points]
    return all(bound is not None and bound >= MANY_TIMES for bound in bounds)


def _beside(explanation: Explanation, knob_effect: KnobEffect, *, no_use: bool) -> Iterator[str]:
    """Remarks on a knob."""
    if not knob_effect.varied:
        pays = "; others could gain" if explanation.is_worth_varying(knob_effect) else ""
        yield f"the study has one value{pays}"
    left = explanation.left[knob_effect.name]
    if 0 < len(left) < len(knob_effect.choices):
        yield f"not measured: {', '.join('not set' if v is None else str(v) for v in left)}"
    depth = explanation.points[0].depth
    if knob_effect.limit is Limit.DEPTH and len(left) > 1 and depth is not None:
        yield f"highest bound at {depth}"
    if (seen := explanation.seen.get(knob_effect.name)) is not None:
        yield f"measured {describe_gains(seen)} (trial {seen.trial})"
    if no_use and left:
        yield "no useful bound"


def _batches(console: Console, explanation: Explanation, point: PointExplanation) -> None:
    speculates = explanation.trial.configuration.speculation.enabled
    by_time = sorted(point.times.batches, key=_seconds, reverse=True)
    shown = sorted(by_time[:_MOST_BATCHES], key=lambda batch: batch.size)
    say(console, f"{point.measurement.point.name}, ms per cycle:", style="bold")
    table = Table(box=None, padding=(0, 1), collapse_padding=True)
    table.add_column("batch", justify="right", no_wrap=True)
    table.add_column("part", no_wrap=True)
    for header in ("cycles", "mean", "median", "p95", "graph"):
        table.add_column(header, justify="right", no_wrap=True)
    for batch in shown:
        size = str(batch.size) if batch.size else "all"
        rows = [(part_name(n, speculates=speculates), batch.parts.get(n)) for n in PARTS]
        for name, part in (*rows, ("cycle", batch.cycle)):
            if part is not None and part.count > 0:
                table.add_row(size, name, *_cells(part))
                size = ""
    print_table(console, table)
    if len(by_time) > len(shown):
        others = len(by_time) - len(shown)
        say(console, f"  ({others} more batch sizes with --json)")
    say(console, "")


def _cells(part: PartTime) -> tuple[str, ...]:
    graph = "" if part.graph_share is None else f"{part.graph_share:.0%}"
    return (str(part.count), *_times(part), graph)


def _times(part: PartTime) -> tuple[str, ...]:
    values = (part.total_s / part.count, part.median_s, part.p95_s)
    return tuple("" if value is None else f"{1000 * value:.3f}" for value in values)


def _seconds(batch: BatchCycles) -> float:
    return sum(part.total_s for part in batch.parts.values())


def _sentence(console: Console, text: str, lead: str = "- ") -> None:
    if "`" in text:
        say(console, lead + text)  # a command is copied in one piece
        return
    indent = " " * len(lead)
    for number, line in enumerate(fold(text, console.width - len(lead)).split("\n")):
        say(console, (indent if number else lead) + line)
