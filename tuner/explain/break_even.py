"""The accept length from which on speculation beats decoding without it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tuner.explain.mean_cycle import mean_cycle, mean_cycles

if TYPE_CHECKING:
    from results.records import Measurement, Trial


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
    accept, times = measurement.accept_length, measurement.cycle
    if baseline is None or accept is None or times is None or len(baseline.measurements) <= index:
        return None
    cycle = mean_cycle(times)
    found = _decode(baseline.measurements[index], measurement)
    if cycle is None or found is None:
        return None
    seconds, decode_s, source = found
    same = (
        baseline.configuration.flags == trial.configuration.flags
        and baseline.configuration.env == trial.configuration.env
    )
    return BreakEven(baseline.number, decode_s, seconds / decode_s, accept, source, same)


def decode_forward_s(baseline: Trial | None, index: int, measurement: Measurement) -> float | None:
    """The baseline's forward of one token, at the batch sizes of a measurement."""
    if baseline is None or len(baseline.measurements) <= index or measurement.cycle is None:
        return None
    plain = baseline.measurements[index].cycle
    if plain is None:
        return None
    ours, theirs = mean_cycles(measurement.cycle), mean_cycles(plain)
    common = [size for size in ours if size in theirs]
    if not common:
        return None
    count = sum(ours[size].count for size in common)
    return sum(theirs[s].parts["verify"] * ours[s].count for s in common) / count


def _decode(
    plain: Measurement, measurement: Measurement
) -> tuple[float, float, Literal["clock", "tpot"]] | None:
    """The trial's cycle, and the baseline's step at the same batch sizes, in seconds."""
    if measurement.cycle is None:
        return None
    ours = mean_cycles(measurement.cycle)
    count = sum(cycle.count for cycle in ours.values())
    if not count:
        return None
    if plain.cycle is not None:
        theirs = mean_cycles(plain.cycle)
        common = [size for size in ours if size in theirs]
        if common:
            of_common = sum(ours[size].count for size in common)
            seconds = sum(ours[s].total_s * ours[s].count for s in common) / of_common
            decode = sum(theirs[s].total_s * ours[s].count for s in common) / of_common
            return seconds, decode, "clock"
    per_token = plain.tpot_p50_ms / 1000.0
    if not math.isfinite(per_token) or per_token <= 0:
        return None
    mean = sum(cycle.total_s * cycle.count for cycle in ours.values()) / count
    return mean, per_token, "tpot"
