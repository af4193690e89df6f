"""Format configurations and measurements for lines and tables."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from runners.sglang.command import flag_words
from search_spaces.algorithms import ALGORITHMS, Shape
from search_spaces.configuration import NO_SPECULATION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from results.records import Measurement, Trial
    from search_spaces.configuration import Configuration, Speculation
    from search_spaces.metrics import Metric
    from search_spaces.study_file.study import SpaceSpec, Study, SubSpace

MOST_CHARACTERS = 160
"""Of a failure's message in a line or a table; whole messages are in `show --trial` and JSON."""

_CUT = " ... "

_RATE_UNITS = {
    "output_tok_s": ("tok/s", ".1f"),
    "goodput_request_s": ("good req/s", ".2f"),
    "request_s": ("req/s", ".2f"),
}


def describe_speculation(speculation: Speculation) -> str:
    """`"EAGLE3 steps 2"`, `"EAGLE3 steps 3, topk 2, 8 draft tokens"`, `"no speculation"`."""
    if not speculation.enabled:
        return "no speculation"
    parts = []
    known = ALGORITHMS.get(speculation.algorithm)
    # A block has one step and one branch always: its size tells all.
    block = known is not None and known.shape is Shape.BLOCK
    if speculation.num_steps is not None and not block:
        parts.append(f"steps {speculation.num_steps}")
    # A chain's width follows from its steps: not worth a reader's time.
    if speculation.topk is not None and speculation.topk > 1:
        parts.append(f"topk {speculation.topk}")
    if speculation.num_draft_tokens is not None and (block or (speculation.topk or 0) != 1):
        parts.append(f"{speculation.num_draft_tokens} draft tokens")
    return f"{speculation.algorithm} {', '.join(parts)}".strip()


def counted(number: int, thing: str) -> str:
    """`"1 launch"`, `"2 launches"`."""
    if number == 1:
        return f"1 {thing}"
    return f"{number} {thing}{'es' if thing.endswith(('ch', 's', 'x')) else 's'}"


def describe_choices(space: SpaceSpec) -> Iterator[tuple[str, str]]:
    """Format the values of each knob of a study: `("NCCL_PROTO", "not set | LL")`."""
    yield from (("speculation", _sub_space(part)) for part in space.speculation)
    if space.draft_tp is not None and len(space.draft_tp) > 1:
        yield "draft_tp", _numbers(space.draft_tp)
    for name, values in space.flags.items():
        yield f"--{name}", " | ".join(_flag_choice(value) for value in values)
    for name, texts in space.env.items():
        yield name, " | ".join("not set" if text is None else str(text) for text in texts)
    if space.conditions:
        yield "conditions", f"{len(space.conditions)}, of the study file"


def _sub_space(part: SubSpace) -> str:
    if part.canonical_algorithm == NO_SPECULATION:
        return "none"
    numbers = [
        f"{name} {_numbers(values)}"
        for name, values in (
            ("steps", part.num_steps),
            ("topk", part.topk),
            ("draft tokens", part.num_draft_tokens if part.topk != (1,) else None),
        )
        if values is not None
    ]
    own = [
        f"--{name} {' | '.join(map(_flag_choice, values))}" for name, values in part.flags.items()
    ]
    return ", ".join(
        (f"{part.algorithm} {numbers[0]}" if numbers else part.algorithm, *numbers[1:], *own)
    )


def _numbers(values: Sequence[int]) -> str:
    """Format consecutive numbers as `"1-7"`, other numbers one by one."""
    first, last = min(values), max(values)
    if len(values) > 2 and sorted(values) == list(range(first, last + 1)):
        return f"{first} to {last}"
    return "/".join(map(str, values))


def _flag_choice(value: object) -> str:
    if value is None or value is False:
        return "not given"
    if value is True:
        return "given"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def fixed_names(study: Study) -> frozenset[str]:
    """Names of the flags and variables that a study gives to every launch."""
    given = (*study.server.flags.items(), *study.server.env.items())
    return frozenset(name for name, value in given if not _is_off(value))


def _is_off(value: object) -> bool:
    """Whether a value means that the flag is not given. Zero is a value."""
    return value is None or value is False


def describe_system(configuration: Configuration, fixed: Collection[str] = ()) -> str:
    """Format the flags and variables that are set; `"defaults"` if none is set.

    Args:
        configuration: The configuration.
        fixed: Names that every other launch sets (`fixed_names`). A name that this configuration
            leaves out is listed with `"without"`.
    """
    parts = [
        " ".join(flag_words(name, value))
        for name, value in configuration.flags
        if not _is_off(value)
    ]
    parts += [f"{name}={value}" for name, value in configuration.env if value is not None]
    taken = [f"--{n}" for n, value in configuration.flags if _is_off(value) and n in fixed]
    taken += [name for name, value in configuration.env if value is None and name in fixed]
    if taken:
        parts.append(f"without {' '.join(taken)}")
    return " ".join(parts) or "defaults"


def describe(configuration: Configuration, fixed: Collection[str] = ()) -> str:
    """Format speculation and system settings in one line."""
    speculation = describe_speculation(configuration.speculation)
    system = describe_system(configuration, fixed)
    return speculation if system == "defaults" else f"{speculation}, {system}"


def describe_resolved(trial: Trial) -> str:
    """Format the differences between the resolved and the requested configuration."""
    if trial.resolved is None or trial.resolved == trial.configuration:
        return ""
    ran, asked = describe(trial.resolved), describe(trial.configuration)
    return ran if ran != asked else ""


def describe_speeds(measurements: Sequence[Measurement], mark: str) -> str:
    """Format the speed at each operating point: `"93.8 tok/s"`.

    Args:
        measurements: One per operating point.
        mark: `"simulated "`, or nothing.
    """
    if len(measurements) == 1:
        return _speed(measurements[0], mark)
    return ", ".join(f"{_speed(m, mark)} at {m.point.name}" for m in measurements)


def describe_unit(metric: Metric) -> tuple[str, str]:
    """Name and format of a metric: `("TTFT p95 ms", ".1f")`."""
    if metric.name in _RATE_UNITS:
        return _RATE_UNITS[metric.name]
    what, percentile, unit = metric.name.split("_")
    return f"{what.upper()} {percentile} {unit}", ".1f"


def describe_values(measurements: Sequence[Measurement], metric: Metric) -> str:
    """Format a metric at each operating point without its unit: `"2.50 / 4.71"`."""
    spec = describe_unit(metric)[1]
    return " / ".join(describe_number(getattr(m, metric.name), spec) or "?" for m in measurements)


def describe_result(measurements: Sequence[Measurement], metric: Metric, mark: str) -> str:
    """Format the metric of a study and the speed: `"2.50 good req/s (93.8 tok/s)"`.

    Args:
        measurements: One per operating point.
        metric: Metric of the study's objective.
        mark: `"simulated "`, or nothing.
    """
    if metric.name == "output_tok_s":
        return describe_speeds(measurements, mark)
    unit, _ = describe_unit(metric)
    parts = [
        f"{describe_values([m], metric)} {mark}{unit} ({m.output_tok_s:.1f} tok/s)"
        + (f" at {m.point.name}" if len(measurements) > 1 else "")
        for m in measurements
    ]
    return ", ".join(parts)


def shorten(message: str) -> str:
    """Shorten a failure's message to its first sentence, and cut the middle of a long sentence.

    The beginning says what happened, and the end quotes the log or names the flag.
    """
    first = re.split(r"(?<=[.!?])\s+(?=[A-Z`])|\n", message.strip(), maxsplit=1)[0]
    if len(first) <= MOST_CHARACTERS:
        return first
    tail = MOST_CHARACTERS * 5 // 8
    begin = first[: MOST_CHARACTERS - tail - len(_CUT)]
    end = first[-tail:]
    # Between words, where there are any.
    begin = (begin.rpartition(" ")[0] or begin).rstrip(" ,;:")
    return begin + _CUT + (end.partition(" ")[2].lstrip() or end)


def _speed(m: Measurement, mark: str) -> str:
    good = describe_number(m.goodput_request_s, ".2f")
    of_them = f" ({good} good requests/s)" if good else ""
    return f"{m.output_tok_s:.1f} {mark}tok/s{of_them}"


def describe_figures(m: Measurement) -> list[tuple[str, str]]:
    """Format the metrics of a measurement with their names, without those that were not measured.

    Measurements of schema 0001 lack some metrics, which are NaN.
    """
    mark = " (simulated)" if m.simulated else ""
    rows = [
        ("output tok/s", f"{m.output_tok_s:.1f}{mark}"),
        ("tok/s of one user", describe_number(m.user_tok_s, ".1f")),
        ("accept length", describe_number(m.accept_length, ".3f")),
        ("accept rate", describe_number(m.accept_rate, ".1%")),
        ("correct drafts", describe_histogram(m.histogram)),
        ("TTFT p50 / p95 / p99", _times(m.ttft_p50_ms, m.ttft_p95_ms, m.ttft_p99_ms, digits=1)),
        ("TPOT p50 / p95 / p99", _times(m.tpot_p50_ms, m.tpot_p95_ms, m.tpot_p99_ms, digits=2)),
        ("E2E p50 / p95 / p99", _times(m.e2e_p50_ms, m.e2e_p95_ms, m.e2e_p99_ms, digits=0)),
        ("between chunks p50 / p95", _times(m.chunk_p50_ms, m.chunk_p95_ms, digits=2)),
        ("tokens per chunk", describe_number(m.tokens_per_chunk, ".2f")),
        ("requests/s", _requests(m)),
        ("requests", f"{m.requests} answered, {m.failed_requests} failed"),
        ("prompt tokens", f"{m.prompt_tokens}, {m.cached_tokens} of them from the cache"),
        ("window", f"{m.window_s:.1f} s, {m.output_tokens} output tokens"),
    ]
    return [(name, value) for name, value in rows if value]


def describe_histogram(histogram: Sequence[int]) -> str:
    """Format the share of verify calls by number of correct drafts: `"0: 40%, 1: 35%, 2: 25%"`."""
    total = sum(histogram)
    return ", ".join(f"{k}: {n / total:.0%}" for k, n in enumerate(histogram)) if total else ""


def describe_reasons(m: Measurement) -> list[str]:
    """Format the reasons that make a measurement invalid, and its warnings."""
    return [
        *(f"invalid: {reason}" for reason in m.invalid),
        *(f"warning: {reason}" for reason in m.warnings),
    ]


def _requests(m: Measurement) -> str:
    parts = [
        (describe_number(m.request_s, ".2f"), "answered"),
        (describe_number(m.offered_request_s, ".2f"), "offered"),
        (describe_number(m.goodput_request_s, ".2f"), "within the limits"),
    ]
    return ", ".join(f"{number} {what}" for number, what in parts if number)


def _times(*values: float, digits: int) -> str:
    shown = [describe_number(value, f".{digits}f") or "?" for value in values]
    return f"{' / '.join(shown)} ms" if any(value != "?" for value in shown) else ""


def describe_number(value: float | None, spec: str) -> str:
    """Format a number; an empty text for NaN or `None`."""
    return "" if value is None or not math.isfinite(value) else format(value, spec)


def describe_gain(gain: float, points: int) -> str:
    """Format a gain: `"+4.6%"`, with the remark that it is a mean over operating points."""
    mean = f" (geometric mean over {points} points)" if points > 1 else ""
    return f"{gain - 1:+z.1%}{mean}"
