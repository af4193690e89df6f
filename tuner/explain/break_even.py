"""The accept length from which on speculation beats decoding without it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tuner.explain.mean_cycle import mean_cycle, mean_cycles
from tuner.scoring import comparable

if TYPE_CHECKING:
    from results.records import Measurement, Trial
    from tuner.explain.mean_cycle import MeanCycle


@dataclass(frozen=True, slots=True)
class BreakEven:
    """A trial's cycle beside the decode steps of the baseline without speculation.

    Attributes:
        trial: Number of the baseline's trial.
        decode_s: The baseline's time for one token of every request that runs.
        needed: Accept length at which both are equally fast.
        accept_length: What it is.
        source: Whether the baseline's time is of its clock, or its time per output token.
        same_settings: Whether both have the same flags and variables.
    """

    trial: int
    decode_s: float
    needed: float
    accept_length: float
    source: Literal["clock", "tpot"]
    same_settings: bool

    @property
    def gain(self) -> float:
        """How much faster speculation decodes; below 0 where it is slower."""
        return self.accept_length / self.needed - 1.0


def break_even(trial: Trial, index: int, baseline: Trial | None) -> BreakEven | None:
    """At one operating point; `None` where one of the two is not known.

    Args:
        trial: A speculative trial with a clock.
        index: Number of the operating point.
        baseline: The trial without speculation.
    """
    measurement = trial.measurements[index]
    accept = measurement.accept_length
    times = measurement.cycle
    cycle = mean_cycle(times) if times is not None else None
    if accept is None or times is None or cycle is None:
        return None
    if baseline is None or not comparable(baseline):
        return None
    plain = baseline.measurements[index]
    same = (
        baseline.configuration.flags == trial.configuration.flags
        and baseline.configuration.env == trial.configuration.env
    )
    if pairs := _at_equal_sizes(measurement, plain):
        seconds = sum(ours.total_s * ours.count for ours, _ in pairs)
        decode_s = sum(theirs.total_s * ours.count for ours, theirs in pairs)
        count = sum(ours.count for ours, _ in pairs)
        needed = seconds / decode_s
        return BreakEven(baseline.number, decode_s / count, needed, accept, "clock", same)
    per_token_s = plain.tpot_p50_ms / 1000.0
    if times.source != "plugin":
        return None  # GPU time says nothing beside a client's time
    if not math.isfinite(per_token_s) or per_token_s <= 0:
        return None
    needed = cycle.total_s / per_token_s
    return BreakEven(baseline.number, per_token_s, needed, accept, "tpot", same)


def decode_forward_s(plain: Trial | None, index: int, measurement: Measurement) -> float | None:
    """A forward of one token, at the batch sizes of a measurement; `None` where it is not known.

    Args:
        plain: A comparable trial without speculation.
        index: Number of the operating point.
        measurement: Of a speculative trial at that point.
    """
    pairs = _at_equal_sizes(measurement, plain.measurements[index]) if plain is not None else []
    if not pairs:
        return None
    seconds = sum(theirs.parts["verify"] * ours.count for ours, theirs in pairs)
    return seconds / sum(ours.count for ours, _ in pairs)


def _at_equal_sizes(
    measurement: Measurement, plain: Measurement
) -> list[tuple[MeanCycle, MeanCycle]]:
    """The mean cycles of both at each batch size that both had."""
    if measurement.cycle is None or plain.cycle is None:
        return []
    theirs = mean_cycles(plain.cycle)
    ours = mean_cycles(measurement.cycle)
    return [(cycle, theirs[size]) for size, cycle in ours.items() if size in theirs]
