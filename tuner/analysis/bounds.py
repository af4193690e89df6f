"""Largest possible gain from a part of the cycle, and the accept length needed to break even.

Bounds are on decoding speed (accept length / cycle time). Prefill is not included, so tok/s gains
less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tuner.analysis.mean_cycle import mean_cycle, mean_cycles
from tuner.verdict.scores import comparable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from results.records import Measurement, Trial
    from tuner.analysis.mean_cycle import MeanCycle


_NOTHING = 1e-12
"""A share below this is the rounding of sums."""


def gain_if_instant(share: float) -> float:
    """Gain if a part took no time (Amdahl): 0.25 for a fifth; infinite for the whole cycle."""
    left = 1.0 - share
    return share / left if left > _NOTHING else math.inf


def gain_if_shorter(share: float, by: float) -> float:
    """Gain if a part of the cycle became shorter by the share `by` of its time."""
    return gain_if_instant(share * by)


@dataclass(frozen=True, slots=True)
class Chain:
    """A measured chain (topk 1) that bounds the gain of other depths.

    Assumptions: the time of a forward per token never grows with the number of tokens. A verify is
    at least as long as a decode forward. Drafts are correct with the same probability at every
    depth (which shifts the bound by a few per cent). A further step never shortens a cycle.

    Attributes:
        steps: Draft steps, at least 1.
        accept_length: Tokens per cycle, at least 1.
        at_least: P(at least j drafts are correct), j = 1 to `steps`; empty if unknown.
        cycle: Mean cycle.
        decode_s: Seconds of a one-token forward of the target without speculation; `None` if
            unknown.
    """

    steps: int
    accept_length: float
    at_least: tuple[float, ...]
    cycle: MeanCycle
    decode_s: float | None = None

    @classmethod
    def of(
        cls,
        steps: int,
        accept_length: float,
        histogram: Sequence[int],
        cycle: MeanCycle,
        decode_s: float | None,
    ) -> Chain:
        """Make a chain, with probabilities if the histogram has any correct drafts."""
        total = sum(histogram)
        at_least = tuple(sum(histogram[j:]) / total for j in range(1, steps + 1)) if total else ()
        return cls(max(1, steps), max(1.0, accept_length), at_least, cycle, decode_s)

    def gain_at(self, steps: int) -> float:
        """Largest possible gain of another depth; never negative."""
        tokens = self._tokens_at(steps) / self.accept_length
        seconds = self._least_s(steps)
        if seconds <= 0:
            return math.inf
        return max(0.0, tokens * self.cycle.total_s / seconds - 1.0)

    def best_gain(self, depths: Iterable[int]) -> tuple[int, float] | None:
        """The depth with the largest possible gain; `None` without another depth."""
        gains = [(steps, self.gain_at(steps)) for steps in sorted(set(depths) - {self.steps, 0})]
        return max(gains, key=lambda gain: gain[1], default=None)

    def _tokens_at(self, steps: int) -> float:
        """Largest possible accept length at a depth."""
        correct = self.accept_length - 1.0
        if steps < self.steps:
            shallow = sum(self.at_least[:steps]) if self.at_least else correct
            return 1.0 + min(shallow, correct, steps)
        # A further draft is never correct more often than the one before.
        last = self.at_least[-1] if self.at_least else correct / self.steps
        return min(steps + 1.0, self.accept_length + (steps - self.steps) * last)

    def _least_s(self, steps: int) -> float:
        """Smallest possible cycle time at a depth, in seconds."""
        if steps >= self.steps:
            return self.cycle.total_s
        parts = self.cycle.parts
        width = (steps + 1) / (self.steps + 1)
        verify = parts["verify"] * width
        if self.decode_s is not None:
            verify = max(verify, min(self.decode_s, parts["verify"]))
        # The first draft of a chain comes from the draft extend before it.
        draft = parts["draft"] * (steps - 1) / (self.steps - 1)
        return draft + parts["draft_extend"] * width + verify + parts["rest"]


def widest_gain(steps: int, accept_length: float) -> float:
    """Largest possible gain of a tree with the depth of the chain, if every draft is correct.

    Assumption: a wider verify is not shorter.
    """
    return max(0.0, (steps + 1.0) / max(1.0, accept_length) - 1.0)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """A trial's cycle compared with decode steps of the baseline without speculation.

    Attributes:
        trial: Number of the baseline's trial.
        decode_s: Seconds in which the baseline generates one token for every running request.
        needed: Accept length at which both are equally fast.
        accept_length: Measured accept length.
        source: Whether `decode_s` comes from the baseline's clock or from its time per output
            token.
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
        """Decoding gain of speculation; negative if speculation is slower."""
        return self.accept_length / self.needed - 1.0


def break_even(trial: Trial, index: int, baseline: Trial | None) -> BreakEven | None:
    """Compare a trial with the baseline at one operating point; `None` if a time is unknown.

    Args:
        trial: A speculative trial with cycle times.
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
    """Mean seconds of a one-token forward at the batch sizes of a measurement; `None` if unknown.

    Args:
        plain: A comparable trial without speculation.
        index: Number of the operating point.
        measurement: Measurement of a speculative trial at that point.
    """
    pairs = _at_equal_sizes(measurement, plain.measurements[index]) if plain is not None else []
    if not pairs:
        return None
    seconds = sum(theirs.parts["verify"] * ours.count for ours, theirs in pairs)
    return seconds / sum(ours.count for ours, _ in pairs)


def _at_equal_sizes(
    measurement: Measurement, plain: Measurement
) -> list[tuple[MeanCycle, MeanCycle]]:
    """Mean cycles of both measurements at each batch size that both have."""
    if measurement.cycle is None or plain.cycle is None:
        return []
    theirs = mean_cycles(plain.cycle)
    ours = mean_cycles(measurement.cycle)
    return [(cycle, theirs[size]) for size, cycle in ours.items() if size in theirs]
