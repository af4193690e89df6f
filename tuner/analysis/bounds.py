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
    """What a part would buy that took no time at all (Amdahl): 0.25 of a fifth.

    Infinite where nothing else is left.
    """
    left = 1.0 - share
    return share / left if left > _NOTHING else math.inf


def gain_if_shorter(share: float, by: float) -> float:
    """What it buys to shorten a part by a share `by` of itself."""
    return gain_if_instant(share * by)


@dataclass(frozen=True, slots=True)
class Chain:
    """A measured chain (topk 1), from which other depths are bounded.

    Assumed: a forward's time per token never grows with its tokens, and a verify is no shorter than
    a decode forward; the drafts that are correct at one depth are so at another (cycles that begin
    elsewhere shift this by a few per cent, either way); a step more never shortens a cycle.

    Attributes:
        steps: Draft steps, at least 1.
        accept_length: Tokens per cycle, at least 1.
        at_least: P(at least j drafts are correct), j = 1 to `steps`; empty where it is not known.
        cycle: Its mean cycle.
        decode_s: A forward of one token by the same target without speculation; `None`: not known.
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
        """From a histogram of correct drafts; one that says nothing is left out."""
        total = sum(histogram)
        at_least = tuple(sum(histogram[j:]) / total for j in range(1, steps + 1)) if total else ()
        return cls(max(1, steps), max(1.0, accept_length), at_least, cycle, decode_s)

    def gain_at(self, steps: int) -> float:
        """The largest possible gain of another depth; never negative."""
        tokens = self._tokens_at(steps) / self.accept_length
        seconds = self._least_s(steps)
        if seconds <= 0:
            return math.inf
        return max(0.0, tokens * self.cycle.total_s / seconds - 1.0)

    def best_gain(self, depths: Iterable[int]) -> tuple[int, float] | None:
        """The depth of which most can be hoped; `None` of no other depth."""
        gains = [(steps, self.gain_at(steps)) for steps in sorted(set(depths) - {self.steps, 0})]
        return max(gains, key=lambda gain: gain[1], default=None)

    def _tokens_at(self, steps: int) -> float:
        """The longest possible accept length."""
        correct = self.accept_length - 1.0
        if steps < self.steps:
            shallow = sum(self.at_least[:steps]) if self.at_least else correct
            return 1.0 + min(shallow, correct, steps)
        # The more drafts, the rarer that all are correct: no further one is right more often.
        last = self.at_least[-1] if self.at_least else correct / self.steps
        return min(steps + 1.0, self.accept_length + (steps - self.steps) * last)

    def _least_s(self, steps: int) -> float:
        """The shortest possible cycle."""
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
    """The largest possible gain of a tree as deep as a chain: every draft is correct.

    Assumed: a wider verify is no shorter.
    """
    return max(0.0, (steps + 1.0) / max(1.0, accept_length) - 1.0)


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
