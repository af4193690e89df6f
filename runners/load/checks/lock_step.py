"""Check for lock-step: lanes of a closed loop that send together, unlike independent users."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from runners.load.checks.registry import invalidates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.checks.evidence import Evidence

_TOGETHER_S = 0.002
"""Largest real time between two sends after the same forward of the server."""
_EXCESS = 0.2
"""Allowed share of other lanes that send with a lane, in excess of chance. Varied lengths never
exceed it in the simulations of `tests/runners/load/checks/test_lock_step.py`. All 48 windows at 32
users of `benchmarks/data/h200-noise-requests.csv` (one H200, equal lengths) are above 0.48."""
_MOST_BY_CHANCE = 0.5
"""If more of the other lanes send nearby by chance, the check tells nothing: answers are too
short."""
_FEWEST_CHUNKS = 8
"""Answers with fewer chunks always end together, because they end with the same forward."""


@invalidates
def lock_step(evidence: Evidence) -> str | None:
    """Lanes send in bursts: they share prefills and end together, so tok/s is too high."""
    lanes = evidence.point.concurrency or 1
    # Without a ramp all lanes start together by design.
    sends = sorted(f.sent for f in evidence.flights)[0 if evidence.ramp else lanes :]
    sends = [sent for sent in sends if evidence.opened < sent <= evidence.closed]
    lives = [f.last - f.sent for f in evidence.good_flights if f.last > f.sent]
    if lanes == 1 or len(sends) < lanes or not lives:
        return None
    gaps = [gap for flight in evidence.flights for gap in flight.gaps()]
    if statistics.median(len(f.chunk_times) for f in evidence.flights) < _FEWEST_CHUNKS:
        return None
    near = max(_TOGETHER_S, statistics.median(gaps) / 2 if gaps else 0.0)
    by_chance = 2 * near / statistics.median(lives)
    if by_chance > _MOST_BY_CHANCE:
        return None
    share = min(1.0, neighbours(sends, near) / (lanes - 1))
    if share <= by_chance + _EXCESS + 1 / math.sqrt(len(sends) * (lanes - 1)):
        return None
    if evidence.workload.natural_length:
        remedy = "raise `output_tokens`, the limit at which answers end together"
    elif evidence.workload.output_spread:
        remedy = "raise the spread of `output_tokens`"
    else:
        remedy = (
            "vary the answer lengths (`output_tokens: {mean: N, spread: 0.5}` in a study, "
            "`--output-spread 0.5` in a bench)"
        )
    return (
        f"with each request, {share:.0%} of the other lanes sent a request within "
        f"{1000 * near:.1f} ms ({by_chance:.0%} by chance): the lanes are in lock-step and tok/s "
        f"is too high; {remedy}"
    )


def neighbours(sends: Sequence[float], near: float) -> float:
    """Return the mean number of other sends within `near` seconds of a send; `sends` ascend."""
    counts = (bisect_right(sends, s + near) - bisect_left(sends, s - near) - 1 for s in sends)
    return statistics.fmean(counts)
