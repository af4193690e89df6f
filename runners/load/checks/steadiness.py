"""Checks for a steady load: no lock-step, no standstill, no growing queue, and a long window."""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from runners.load.checks.evidence import invalidates, warns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import RequestSample
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


_SLOWS = 1.5
"""Slowdown of the answers at the end of an open loop that shows a growing queue."""
_PARTS = 4
_QUEUE_REQUESTS = 16
_FEWEST_PACES = 3
_KEEPS_UP = 0.9
"""Answers per arrival in the second half of an open loop that show a server that keeps up."""

_FEWEST_WHOLE = 0.25
"""Smallest share of requests that end in the window in which they were sent."""
_LONG_ENOUGH = 4
"""Recommended length of an open loop's window, in times of a request."""

_STALLED = 0.1
"""Largest part of the window in which one stream may stand still."""
_SILENT = 0.2
"""Largest part of the window in which all streams may stand still."""
_SILENCE_S = 0.1
"""Real seconds for which a busy machine may delay a client."""


@warns
def stalled(evidence: Evidence) -> str | None:
    """A stream stood still for a long time: something other than the load stopped the server."""
    gaps = [(flight.prompt, each) for flight in evidence.good_flights if (each := flight.gaps())]
    if not gaps or evidence.length_s <= 0:
        return None
    longest, prompt = max(((max(each), prompt) for prompt, each in gaps), key=lambda gap: gap[0])
    if longest <= max(_STALLED * evidence.length_s, _SILENCE_S):
        return None
    if longest <= 10 * statistics.median(statistics.median(each) for _, each in gaps):
        return None
    return (
        f"the stream of {prompt} stood still for {longest * evidence.time_scale:.2f} s, "
        f"{longest / evidence.length_s:.0%} of the window: measure again; if the pause returns, "
        "look for other processes, and for retractions in the server's log"
    )


@invalidates
def silent(evidence: Evidence) -> str | None:
    """Closed loop: no stream carried a token for a large part of the window.

    Requests were always in flight, so the server, client or network stood still, and tok/s include
    this time. A long prefill does not count: the first tokens of other requests take as long.
    """
    length, flights = evidence.length_s, evidence.streamed
    if evidence.point.is_open or length <= 0 or len(flights) < _FEWEST_PACES + 1:
        return None
    times = sorted(
        now
        for flight in flights
        for now in flight.chunk_times
        if evidence.opened <= now <= evidence.closed
    )
    gaps = [b - a for a, b in itertools.pairwise([evidence.opened, *times])] or [0.0]
    longest = max(gaps)
    ttft_s = statistics.median(flight.ttft_s for flight in flights)
    if longest < max(_SILENT * length, _SILENCE_S):
        return None
    if longest <= 10 * max(ttft_s, statistics.median(gaps)):
        return None
    return (
        f"no token arrived for {longest * evidence.time_scale:.2f} s, {longest / length:.0%} of "
        f"the window; the median TTFT is {ttft_s * evidence.time_scale:.2f} s: look for other "
        "processes on the machine, and measure again"
    )


@invalidates
def short_window(evidence: Evidence) -> str | None:
    """Open loop: few requests have their whole life in the window, which shows only a start."""
    length = evidence.window_s
    inside = [s for s in evidence.good if 0 <= s.sent_s <= length]
    if not evidence.point.is_open or length <= 0 or not inside:
        return None
    whole = sum(s.sent_s + s.e2e_s <= length for s in inside)
    if whole >= _FEWEST_WHOLE * len(inside):
        return None
    typical = statistics.median(s.e2e_s for s in inside)
    # Under overload longer windows make requests slower still; `queue_grows` reports that.
    count = max(2 * len(evidence.samples), math.ceil(_LONG_ENOUGH * typical * len(inside) / length))
    source = " of a longer trace" if evidence.point.trace is not None else ", or lower the rate"
    return (
        f"{whole} of the {len(inside)} requests that were sent in the window ({length:.1f} s) "
        f"ended in it; the median request took {typical:.1f} s: raise `requests` to about "
        f"{count}{source}"
    )


@invalidates
def queue_grows(evidence: Evidence) -> str | None:
    """Open loop: requests arrive faster than the server answers them.

    The figures of such a window depend only on its length.
    """
    samples, length = evidence.samples, evidence.window_s
    if not evidence.point.is_open or len(samples) < _QUEUE_REQUESTS or length <= 0:
        return None
    arrived = sum(length / 2 <= s.sent_s < length for s in samples)
    answered = sum(length / 2 <= s.sent_s + s.e2e_s < length for s in samples)
    if answered >= _KEEPS_UP * arrived:
        return None
    _, earlier, later, last = _in_flight(evidence.good, length)
    # Once the first answers have ended, chance alone changes a stable queue by its square root and
    # does not slow down every answer. Ramp requests met an empty server.
    first = [s.e2e_s for s in evidence.good if 0 <= s.sent_s < length / _PARTS]
    filled = bool(first) and statistics.median(first) < length / _PARTS
    grows = filled and last - earlier > max(4.0, 3 * math.sqrt(max(earlier, 1.0)))
    slows = _pace(evidence.good, 3, length) > _SLOWS * _pace(evidence.good, 1, length) > 0
    if not grows and not (slows and earlier < later < last):
        return None
    return (
        f"{arrived} requests arrived in the second half of the window and {answered} were "
        f"answered; from the second to the last quarter the requests in flight rose from "
        f"{earlier:.1f} to {last:.1f}: the server cannot keep up with {evidence.point.name}; "
        "lower the rate"
    )


def _pace(samples: Sequence[RequestSample], quarter: int, length: float) -> float:
    """Median seconds per token, end to end, of the requests sent in a quarter; 0 if too few."""
    begin, end = quarter * length / _PARTS, (quarter + 1) * length / _PARTS
    paces = [
        s.e2e_s / s.completion_tokens
        for s in samples
        if begin <= s.sent_s < end and s.completion_tokens
    ]
    return statistics.median(paces) if len(paces) >= _FEWEST_PACES else 0.0


def _in_flight(samples: Sequence[RequestSample], length: float) -> list[float]:
    """Mean number of requests in flight in each quarter."""
    means = []
    for quarter in range(_PARTS):
        begin, end = quarter * length / _PARTS, (quarter + 1) * length / _PARTS
        busy = sum(max(0.0, min(end, s.sent_s + s.e2e_s) - max(begin, s.sent_s)) for s in samples)
        means.append(busy / (end - begin))
    return means
