"""Whether a window shows one state of the server: no standstill, no growing queue, no start."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING

from runners.load.checks.drift import unsteady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import RequestSample
    from runners.load.window.evidence import Check, Evidence

_SLOWS = 1.5
"""Times that answers at the end of an open loop are slower than before, where a queue grows."""

_PARTS = 4
_QUEUE_REQUESTS = 16
_FEWEST_PACES = 3
_KEEPS_UP = 0.9
"""Answers per arrival in the second half of an open loop that is kept up with."""
_LEAST_WHOLE = 0.25
"""Requests that end in the window they were sent in: where all are alike, it lasts 1.3 of them."""
_LONG_ENOUGH = 4
"""Times that a request should fit into the window of an open loop."""
_LONGEST_SILENCE = 0.1
_SILENT = 0.2
"""Part of the window that all streams together may stand still."""
_SILENCE_S = 0.1
"""Real seconds that a busy machine may hold a client up."""


def stalled(evidence: Evidence) -> str | None:
    """A long silence within a stream: something other than the load held the server up."""
    length = evidence.closed - evidence.opened
    longest, prompt, typical = 0.0, "", []
    for flight, sample in zip(evidence.flights, evidence.samples, strict=True):
        gaps = [b - a for a, b in itertools.pairwise(flight.chunk_times)]
        if sample.error is not None or not gaps:
            continue
        typical.append(statistics.median(gaps))
        if (gap := max(gaps)) > longest:
            longest, prompt = gap, flight.prompt
    if length <= 0 or longest <= max(_LONGEST_SILENCE * length, _SILENCE_S):
        return None
    if longest <= 10 * statistics.median(typical):
        return None
    return (
        f"{prompt} heard nothing for {longest * evidence.time_scale:.2f} s in the middle of its "
        f"answer, {longest / length:.0%} of the window"
    )


def silent(evidence: Evidence) -> str | None:
    """Closed loop: no stream at all was heard for a good part of the window.

    A request was always in flight: server, client or network stood still, and tokens per second
    are of that. A long prefill is no such silence: others are as long.
    """
    length = evidence.closed - evidence.opened
    flights = [f for f in evidence.flights if f.error is None and f.chunk_times]
    if evidence.point.is_open or length <= 0 or len(flights) < _FEWEST_PACES + 1:
        return None
    heard = sorted(
        now
        for flight in flights
        for now in flight.chunk_times
        if evidence.opened <= now <= evidence.closed
    )
    gaps = [b - a for a, b in itertools.pairwise([evidence.opened, *heard])] or [0.0]
    longest = max(gaps)
    waits = statistics.median(flight.chunk_times[0] - flight.sent for flight in flights)
    if longest < max(_SILENT * length, _SILENCE_S):
        return None
    if longest <= 10 * max(waits, statistics.median(gaps)):
        return None
    return (
        f"nothing was heard for {longest * evidence.time_scale:.2f} s on end, "
        f"{longest / length:.0%} of the window; half of the requests waited "
        f"{waits * evidence.time_scale:.2f} s at most for their first token"
    )


def queue_grows(evidence: Evidence) -> str | None:
    """Open loop: requests that come faster than they are served, so that nothing is steady.

    What such a window says depends on its length alone.
    """
    samples, length = evidence.samples, evidence.window_s
    if not evidence.point.is_open or len(samples) < _QUEUE_REQUESTS or length <= 0:
        return None
    arrived = sum(length / 2 <= s.sent_s < length for s in samples)
    left = sum(length / 2 <= s.sent_s + s.e2e_s < length for s in samples)
    if left >= _KEEPS_UP * arrived:
        return None
    _, earlier, later, last = _in_flight(samples, length)
    # Chance alone moves a queue that holds by its root, once the first answers have ended; and it
    # does not slow every answer down. Requests of the ramp met an empty server.
    first = [s.e2e_s for s in samples if 0 <= s.sent_s < length / _PARTS and s.error is None]
    filled = bool(first) and statistics.median(first) < length / _PARTS
    grows = filled and last - earlier > max(4.0, 3 * math.sqrt(max(earlier, 1.0)))
    slows = _pace(samples, 3, length) > _SLOWS * _pace(samples, 1, length) > 0
    if not grows and not (slows and earlier < later < last):
        return None
    return (
        f"{arrived} requests arrived in the second half of the window and {left} were answered; "
        f"from its second to its last quarter those in flight grew from {earlier:.1f} to "
        f"{last:.1f}: the server cannot keep up with {evidence.point.name}"
    )


def short_window(evidence: Evidence) -> str | None:
    """Open loop: hardly a request had its whole life in the window, which shows a start alone."""
    length = evidence.window_s
    inside = [s for s in evidence.good if 0 <= s.sent_s <= length]
    if not evidence.point.is_open or length <= 0 or not inside:
        return None
    whole = sum(s.sent_s + s.e2e_s <= length for s in inside)
    if whole >= _LEAST_WHOLE * len(inside):
        return None
    typical = statistics.median(s.e2e_s for s in inside)
    count = max(2 * len(evidence.samples), math.ceil(_LONG_ENOUGH * typical * len(inside) / length))
    # At a load beyond the server's reach more requests take longer still: `queue_grows` says so.
    source = " of a longer trace" if evidence.point.trace is not None else ", or lower the rate"
    return (
        f"{whole} of the {len(inside)} requests that were sent in the window ({length:.1f} s) "
        f"ended in it; half of them took {typical:.1f} s or more: raise `requests` to about "
        f"{count}{source}"
    )


def _pace(samples: Sequence[RequestSample], quarter: int, length: float) -> float:
    """Median seconds per token, end to end, of the requests sent in a quarter; 0 for none."""
    begin, end = quarter * length / _PARTS, (quarter + 1) * length / _PARTS
    paces = [
        s.e2e_s / s.completion_tokens
        for s in samples
        if s.error is None and begin <= s.sent_s < end and s.completion_tokens
    ]
    return statistics.median(paces) if len(paces) >= _FEWEST_PACES else 0.0


def _in_flight(samples: Sequence[RequestSample], length: float) -> list[float]:
    """Mean requests in flight in each quarter."""
    means = []
    for quarter in range(_PARTS):
        begin, end = quarter * length / _PARTS, (quarter + 1) * length / _PARTS
        busy = sum(
            max(0.0, min(end, s.sent_s + s.e2e_s) - max(begin, s.sent_s))
            for s in samples
            if s.error is None
        )
        means.append(busy / (end - begin))
    return means


STEADINESS: dict[str, Check] = {
    "unsteady": unsteady,
    "silent": silent,
    "short_window": short_window,
    "queue_grows": queue_grows,
}
