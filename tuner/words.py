"""Configurations in words, for lines and tables that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import Measurement
    from search_spaces.configuration import Configuration, Speculation


def describe_speculation(speculation: Speculation) -> str:
    """`"EAGLE3 steps 2"`, `"EAGLE3 steps 3, topk 2, 8 draft tokens"`, `"no speculation"`."""
    if not speculation.enabled:
        return "no speculation"
    parts = []
    if speculation.num_steps is not None:
        parts.append(f"steps {speculation.num_steps}")
    # A chain's width follows from its steps: not worth a reader's time.
    if speculation.topk is not None and speculation.topk > 1:
        parts.append(f"topk {speculation.topk}")
    if speculation.num_draft_tokens is not None and (speculation.topk or 0) != 1:
        parts.append(f"{speculation.num_draft_tokens} draft tokens")
    return f"{speculation.algorithm} {', '.join(parts)}".strip()


def describe_system(configuration: Configuration) -> str:
    """Flags and variables that are set, `"defaults"` where none is."""
    parts = [
        f"--{name}" if value is True else f"--{name} {value}"
        for name, value in configuration.flags
        if value not in {None, False}
    ]
    parts += [f"{name}={value}" for name, value in configuration.env if value is not None]
    return " ".join(parts) or "defaults"


def describe(configuration: Configuration) -> str:
    """Both, on one line."""
    speculation = describe_speculation(configuration.speculation)
    system = describe_system(configuration)
    return speculation if system == "defaults" else f"{speculation}, {system}"


def describe_speeds(measurements: Sequence[Measurement], mark: str) -> str:
    """`"93.8 tok/s"`; with several operating points, which is which.

    Args:
        measurements: One per operating point.
        mark: `"simulated "`, or nothing.
    """
    if len(measurements) == 1:
        return f"{measurements[0].output_tok_s:.1f} {mark}tok/s"
    return ", ".join(f"{m.output_tok_s:.1f} {mark}tok/s at {m.point.name}" for m in measurements)


def describe_gain(gain: float, points: int) -> str:
    """`"+4.6%"`; over several operating points, that it is their mean."""
    mean = f" (geometric mean over {points} points)" if points > 1 else ""
    return f"{gain - 1:+.1%}{mean}"
