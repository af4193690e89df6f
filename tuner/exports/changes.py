"""Changes against a baseline and their gains, as text, table and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from search_spaces.configuration import Speculation
from search_spaces.metrics import OUTPUT_TOK_S
from search_spaces.simulated_acceptance import NOTICE
from tuner.analysis.contributions import Basis
from tuner.analysis.knobs import Kind
from tuner.formatting import describe_speculation, describe_unit
from tuner.reports.console import print_table, reader

if TYPE_CHECKING:
    from tuner.analysis.contributions import Change, Contributions, Worth
    from tuner.analysis.knobs import Knob
    from tuner.exports.exported import Exported


def describe_name(knob: Knob) -> str:
    """`"--attention-backend"`, `"NCCL_PROTO"`, `"draft steps"`."""
    return f"--{knob.name}" if knob.kind is Kind.FLAG else knob.name


def describe_value(knob: Knob, value: Any) -> str:  # noqa: ANN401 - any knob's value
    """Format a knob's value; `"not given"` or `"not set"` for `None`."""
    if isinstance(value, Speculation):
        text = describe_speculation(value)
        # Both have one algorithm, so omit its name.
        short = text.removeprefix(value.algorithm).strip() if knob.kind is Kind.DRAFT else text
        return short or "SGLang's own"
    if value is None:
        return {Kind.VARIABLE: "not set", Kind.DRAFT_TP: "none"}.get(knob.kind, "not given")
    if value is True:
        return "on"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value) if value != "" else '""'


def describe_change(change: Change) -> str:
    """`"NCCL_PROTO: not set -> LL128"`."""
    knob = change.knob
    before, after = (describe_value(knob, value) for value in (change.before, change.after))
    return f"{describe_name(knob)}: {before} -> {after}"


def describe_worth(change: Change, found: Contributions, *, simulated: bool) -> str:
    """Format the gain of a change and the trials that show it."""
    worth = change.worth
    if worth.gain is None or worth.trials is None:
        return _unmeasured(worth)
    percent = _percent(worth.gain, simulated=simulated)
    with_it, without = worth.trials
    text = f"{percent} (trial {with_it} against trial {without}, everything else equal"
    if worth.basis is Basis.ELSEWHERE:
        text += "; other settings than in this configuration"
    text += ")"
    if worth.basis is Basis.NEXT_BEST:
        other = describe_value(change.knob, worth.other)
        before = describe_value(change.knob, change.before)
        text += f" over the next best value, {other}; {before} has no comparable trial"
    elif worth.pairs > 1 and worth.lowest is not None and worth.highest is not None:
        low, high = worth.lowest - 1, worth.highest - 1
        text += f"; {low:+z.1%} to {high:+z.1%} in {worth.pairs} pairs of trials"
    if found.within_noise(worth.gain):
        text += f"; within noise (launches of one configuration differ by {found.noise:.1%})"
    return text


def describe_changes(found: Contributions, *, simulated: bool) -> list[str]:
    """Format the comparison, one line per change; changes are indented."""
    lines = [opening_words(found)]
    for change in found.changes:
        worth = describe_worth(change, found, simulated=simulated)
        lines.append(f"  {describe_change(change)}: {worth}")
    return lines + closing_words(found, simulated=simulated)


def opening_words(found: Contributions) -> str:
    """First line of the comparison: trial and baseline."""
    if found.baseline is None:
        return "No baseline was measured."
    base = f"baseline '{found.baseline}' (trial {found.baseline_trial})"
    if not found.changes:
        return f"Same configuration as {base}."
    return f"Changes against {base}:"


def closing_words(found: Contributions, *, simulated: bool) -> list[str]:
    """Last lines of the comparison: total gain and noise."""
    lines = []
    if found.speculation is not None:
        worth = describe_worth(found.speculation, found, simulated=simulated)
        lines.append(f"Speculation instead of none: {worth}")
    if not found.changes:
        return lines
    if found.total is None:
        return [*lines, "All together: unknown, because one of the trials has no results."]
    lines.append(f"All together: {_percent(found.total, simulated=simulated)}.")
    if found.metric != OUTPUT_TOK_S or found.points > 1:
        lines.append(_of_what(found))
    if len(found.changes) > 1:
        lines.append("The gains of single changes do not add up to the total gain.")
    if found.noise is None:
        lines.append("The noise is unknown, because no launch was repeated.")
    return lines


def changes_json(found: Contributions, *, simulated: bool) -> dict[str, Any]:
    """JSON of the comparison: `against`, `speculation` and `changes`."""
    against = {
        "baseline": found.baseline,
        "trial": found.baseline_trial,
        "gain": found.total,
        "noise": found.noise,
    }
    return {
        "against": against if found.baseline is not None else None,
        "speculation": _change_json(found.speculation, found, simulated=simulated)
        if found.speculation is not None
        else None,
        "changes": [_change_json(change, found, simulated=simulated) for change in found.changes],
    }


def _change_json(change: Change, found: Contributions, *, simulated: bool) -> dict[str, Any]:
    worth = change.worth
    return {
        "kind": str(change.knob.kind),
        "name": change.knob.name,
        "before": _json(change.before),
        "after": _json(change.after),
        "gain": worth.gain,
        "basis": str(worth.basis),
        "trials": list(worth.trials) if worth.trials is not None else None,
        "other": _json(worth.other),
        "pairs": worth.pairs,
        "lowest_gain": worth.lowest,
        "highest_gain": worth.highest,
        "together": worth.together,
        "simulated": simulated,
        "text": f"{describe_change(change)}: {describe_worth(change, found, simulated=simulated)}",
    }


def _json(value: Any) -> Any:  # noqa: ANN401 - any knob's value
    if isinstance(value, Speculation):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def _percent(gain: float, *, simulated: bool) -> str:
    return f"{gain - 1:+z.1%}" + (" simulated" if simulated else "")


def _of_what(found: Contributions) -> str:
    """Metric of a gain, if it is not the speed at one point."""
    unit = describe_unit(found.metric)[0]
    text = f"Gains refer to {unit}"
    if not found.metric.larger_is_better:
        text += ", as the factor by which it is shorter"
    if found.points > 1:
        text += f", geometric mean over {found.points} operating points"
    return f"{text}."


def _unmeasured(worth: Worth) -> str:
    if worth.basis is Basis.INACTIVE:
        return "no effect: SGLang's own all-reduce kernel handles decoding here, not NCCL"
    if not worth.together:
        return "not measured separately: no measured trial has another value"
    trials = "1 trial differs" if worth.together == 1 else f"{worth.together} trials differ"
    return f"not measured separately: {trials} in this and in other settings"


def render_changes(exported: Exported) -> None:
    """Print the comparison to stdout."""
    console = reader()
    found, simulated = exported.contributions, exported.simulated
    mark = ", every figure simulated" if simulated else ""
    mark += f"; {NOTICE}" if exported.facts["simulated_acceptance"] else ""
    title = f"study {exported.study}, trial {exported.trial}{mark}"
    console.print(Text(title), style="bold")
    console.print(Text(opening_words(found)))
    if found.changes:
        table = Table(box=SIMPLE_HEAD)
        for name in ("", found.baseline or "", "exported", "worth"):
            table.add_column(name, overflow="fold")
        for change in found.changes:
            knob = change.knob
            cells = (
                describe_name(knob),
                describe_value(knob, change.before),
                describe_value(knob, change.after),
                describe_worth(change, found, simulated=False),
            )
            # As text: a value may hold what the console takes for markup.
            table.add_row(*map(Text, cells))
        print_table(console, table)
    for line in closing_words(found, simulated=simulated):
        console.print(Text(line))
