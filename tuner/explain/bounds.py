"""How much a change of one part of a cycle can buy at most.

All of it is of decoding: the speed is accept length / cycle time, and prefills are left out, so the
tok/s that a client sees gain less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuner.explain.mean_cycle import MeanCycle

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
