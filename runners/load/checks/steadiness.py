"""Checks for a steady load: no standstill, no growing queue, and a window of sufficient length."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING

from runners.load.checks.registry import invalidates, warns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import RequestSample
    from runners.load.checks.evidence import Evidence

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
        f"{longest / evidence.length_s:.0%} of the window"
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
        f"the window; the median TTFT is {ttft_s * evidence.time_scale:.2f} s"
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
        f"{earlier:.1f} to {last:.1f}: the server cannot keep up with {evidence.point.name}"
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
