"""Whether the lanes of a closed loop send in bursts, as no independent users do."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.window.evidence import Evidence

_TOGETHER_S = 0.002
"""Real seconds between two sends that one forward of the server brought about."""
_EXCESS = 0.2
"""Share of the other lanes that may send with a lane, beyond what chance explains. Varied
lengths never exceed it in the walks of `tests/runners/load/test_lock_step.py`. The 48 windows at 32
users of `benchmarks/data/h200-noise-requests.csv` (one H200, equal lengths) are all above 0.48."""
_MOST_BY_CHANCE = 0.5
"""Share of the other lanes that sends so near by chance, from which on nothing can be told: answers
are over in a few chunks."""

_FEWEST_CHUNKS = 8
"""Answers of fewer chunks end together by nature: ends come at the ends of forwards."""


def lock_step(evidence: Evidence) -> str | None:
    """Lanes in lock-step: prompts share prefills and answers end together, so tok/s is too high."""
    lanes = evidence.point.concurrency or 1
    # Without a ramp all lanes start together on purpose.
    sends = sorted(f.sent for f in evidence.flights)[0 if evidence.ramp else lanes :]
    sends = [sent for sent in sends if evidence.opened < sent <= evidence.closed]
    lives = [f.last - f.sent for f in evidence.flights if f.error is None and f.last > f.sent]
    if lanes == 1 or len(sends) < lanes or not lives:
        return None
    gaps = [b - a for f in evidence.flights for a, b in pairwise(f.chunk_times)]
    if statistics.median(len(f.chunk_times) for f in evidence.flights) < _FEWEST_CHUNKS:
        return None
    near = max(_TOGETHER_S, statistics.median(gaps) / 2 if gaps else 0.0)
    by_chance = 2 * near / statistics.median(lives)
    if by_chance > _MOST_BY_CHANCE:
        return None
    share = min(1.0, company(sends, near) / (lanes - 1))
    if share <= by_chance + _EXCESS + 1 / math.sqrt(len(sends) * (lanes - 1)):
        return None
    if evidence.workload.natural_length:
        remedy = "raise `output_tokens`, the limit at which answers end together"
    elif evidence.workload.output_spread:
        remedy = "raise the spread of `output_tokens`"
    else:
        remedy = (
            "vary the answers' lengths (`output_tokens: {mean: N, spread: 0.5}` in a study, "
            "`--output-spread 0.5` in a bench)"
        )
    return (
        f"with each request, {share:.0%} of the other lanes sent one within "
        f"{1000 * near:.1f} ms ({by_chance:.0%} by chance): the lanes are in lock-step and tok/s "
        f"is too high; {remedy}"
    )


def company(sends: Sequence[float], near: float) -> float:
    """Mean number of other sends within `near` seconds of a send; `sends` ascend."""
    counts = (bisect_right(sends, s + near) - bisect_left(sends, s - near) - 1 for s in sends)
    return statistics.fmean(counts)
