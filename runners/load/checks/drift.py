"""Whether the server kept one pace: no trend, no step, and no slow requests or moments.

The pace is the time between two chunks of a stream, per verify (per token without speculation), so
acceptance does not matter. A prefill between two chunks is no change of pace: each figure here
leaves out the longest gaps. Open loops are exempt, since arrivals change the batch and with it the
pace. So are adaptive servers, which change their own steps.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runners.load.window.evidence import Evidence

WARNED = 0.03
"""Change of the pace over the window from which on it deserves a look."""

UNSTEADY = 0.10
"""Change from which on a window is not believed."""

_BLOCKS = 24
_FEWEST_BLOCKS = 8
_GAPS_PER_BLOCK = 12
_LEAST_PER_SIDE = 3
"""Blocks on each side of a step."""
_LEAST_NOISE = 0.002
"""Standard deviation of a block that is assumed at least."""
_CLOCK_S = 1e-4
"""Real seconds per verify or token that a client cannot tell: chunks of a simulated server that
runs ten times faster than life merge. A GPU's gap of 5 ms may change by 2 % within it."""

_FIRST_TOKENS = 0.25
"""Change of the time to first token from which on it deserves a look."""
_FIRST_TOKENS_PER_BLOCK = 3

_SLOW = 1.5
"""Times slower than others, from which on a request or a moment is."""
_FEWEST_REQUESTS = 8
_SLOW_REQUESTS = 0.05
"""Share of the requests that have to be slow, and two at least."""
_CYCLES_PER_MOMENT = 16
_FEWEST_MOMENTS = 20
_FEWEST_GAPS = 8
_UNEVEN_CLOCK_S = 1e-3


@dataclass(frozen=True, slots=True)
class _Gap:
    """Between two chunks of one stream.

    Attributes:
        at: When it ends.
        pace: Its seconds per verify or token.
        decodes: Whether no request's first tokens came in it: it has no prefill.
    """

    at: float
    pace: float
    decodes: bool


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of the pace that fits the blocks.

    Attributes:
        size: How much slower the end is than the beginning; below 0 for faster.
        score: The change in units of its standard error.
        rest: Sum of the squares that it does not explain.
        at: Where in the window a step is, from 0 to 1; `None` for a trend.
        until: Where it ends, if the pace comes back; `size` is then that of the whole window.
    """

    size: float
    score: float
    rest: float
    at: float | None = None
    until: float | None = None


def unsteady(evidence: Evidence) -> str | None:
    """Closed loop: the server changed its pace too much for its figures to be of one state."""
    change = _change(evidence)
    return _words(change, evidence) if change and abs(change.size) > UNSTEADY else None


def drift(evidence: Evidence) -> str | None:
    """Closed loop: the server changed its pace, by less than makes the window invalid.

    Or its first tokens came later and later, or ever sooner.
    """
    change = _change(evidence)
    if change is not None:
        return _words(change, evidence) if abs(change.size) <= UNSTEADY else None
    if (change := _change_of_first_tokens(evidence)) is None:
        return None
    how = "rose" if change.size > 0 else "fell"
    return f"the time to first token {how} by {abs(change.size):.0%} over the window"


def _change_of_first_tokens(evidence: Evidence) -> _Change | None:
    """The significant trend in the time to first token, over blocks of requests as sent."""
    if evidence.point.is_open or evidence.adaptive_steps:
        return None
    inside = [
        flight
        for flight in evidence.flights
        if flight.error is None and flight.chunk_times
        if evidence.opened <= flight.sent <= evidence.closed
    ]
    waits = [flight.first - flight.sent for flight in sorted(inside, key=lambda f: f.sent)]
    count = min(_BLOCKS, len(waits) // _FIRST_TOKENS_PER_BLOCK)
    if count < _FEWEST_BLOCKS or min(waits) <= 0:
        return None
    blocks = [waits[n * len(waits) // count : (n + 1) * len(waits) // count] for n in range(count)]
    trend = _trend([math.log(statistics.median(block)) for block in blocks])
    grown = abs(trend.size) * statistics.median(waits)
    if abs(trend.score) <= 5.0 + 12 / count or abs(trend.size) < _FIRST_TOKENS:
        return None
    return trend if grown > _UNEVEN_CLOCK_S else None


def uneven(evidence: Evidence) -> str | None:
    """Closed loop: some requests or moments were far slower than others, again and again."""
    if _change(evidence) is not None:
        return None
    streams = [[gap for gap in stream if gap.decodes] for stream in _streams(evidence)]
    scale = 1000 * evidence.time_scale
    unit = "verify" if evidence.speculation.enabled else "token"
    requests = [_low([g.pace for g in gaps]) for gaps in streams if len(gaps) >= _FEWEST_GAPS]
    if len(requests) >= _FEWEST_REQUESTS:
        typical = statistics.median(requests)
        slow = [pace for pace in requests if pace > max(_SLOW * typical, typical + _UNEVEN_CLOCK_S)]
        if len(slow) >= max(2, _SLOW_REQUESTS * len(requests)):
            factor = statistics.median(slow) / typical
            return (
                f"{len(slow)} of {len(requests)} requests were {factor:.1f} times slower than "
                f"the median ({scale * typical:.2f} ms per {unit}): the mean is right for this mix"
            )
    gaps = [gap for stream in streams for gap in stream]
    length = evidence.closed - evidence.opened
    if not gaps:
        return None
    cycle = statistics.median(gap.pace for gap in gaps) * _verifies_per_chunk(evidence)
    count = min(len(gaps) // _CYCLES_PER_MOMENT, int(length / (_CYCLES_PER_MOMENT * cycle or 1)))
    moments = [_low(paces) for paces in _blocks(gaps, evidence, count, _FEWEST_GAPS)]
    if len(moments) < _FEWEST_MOMENTS:
        return None
    fast, *_, late = statistics.quantiles(moments, n=10)
    if late <= max(_SLOW * fast, fast + _UNEVEN_CLOCK_S):
        return None
    return (
        f"a tenth of the window ran at {scale * late:.2f} ms per {unit} or slower, another tenth "
        f"at {scale * fast:.2f} ms or faster: the mean is right, but the pace is not even"
    )


def _change(evidence: Evidence) -> _Change | None:
    """The significant change of the pace that fits best; `None` if there is none over 3 %."""
    streams = [stream for stream in _streams(evidence) if stream]
    gaps = [gap for stream in streams for gap in stream]
    decoding = [gap for gap in gaps if gap.decodes]
    if len(decoding) >= _BLOCKS * _GAPS_PER_BLOCK:
        gaps = decoding
    # Prompts differ in pace: at concurrency 1 there are no more observations than requests.
    most = min(_BLOCKS, max(_FEWEST_BLOCKS, len(streams)))
    count = min(most, len(gaps) // _GAPS_PER_BLOCK)
    if count < _FEWEST_BLOCKS:
        return None
    paces = [_middle(block) for block in _blocks(gaps, evidence, count, _GAPS_PER_BLOCK // 2)]
    if len(paces) < _FEWEST_BLOCKS or min(paces) <= 0:
        return None
    logs = [math.log(pace) for pace in paces]
    # Fewer blocks tell their own noise less well (Student's t); a step is looked for everywhere.
    limit = 4.0 + 12 / len(logs)
    found = [c for c in [_trend(logs)] if abs(c.score) > limit]
    found += [c for c in [_step(logs)] if abs(c.score) > limit + 1]
    found += [c for c in [_bump(logs)] if abs(c.score) > limit + 2]
    if not found:
        return None
    best = min(found, key=lambda change: change.rest)
    least = max(WARNED, _CLOCK_S / statistics.median(paces))
    return best if abs(best.size) > least else None


def _trend(logs: Sequence[float]) -> _Change:
    """The straight line through the blocks."""
    n = len(logs)
    slope, begin = statistics.linear_regression(range(n), logs)
    rest = [y - begin - slope * x for x, y in enumerate(logs)]
    error = _noise(rest) * math.sqrt(12 / (n * (n * n - 1)))
    return _Change(math.expm1(slope * n), slope / error, sum(r * r for r in rest))


def _step(logs: Sequence[float]) -> _Change:
    """The split of the blocks into two parts that differ most."""
    n = len(logs)

    def step(k: int) -> _Change:
        before, after = statistics.fmean(logs[:k]), statistics.fmean(logs[k:])
        rest = [y - (before if x < k else after) for x, y in enumerate(logs)]
        error = _noise(rest) * math.sqrt(1 / k + 1 / (n - k))
        size = math.expm1(after - before)
        return _Change(size, (after - before) / error, sum(r * r for r in rest), k / n)

    splits = range(_LEAST_PER_SIDE, n - _LEAST_PER_SIDE + 1)
    return min((step(k) for k in splits), key=lambda change: change.rest)


def _bump(logs: Sequence[float]) -> _Change:
    """The part of the blocks, with others before and after it, that differs most from them."""
    n = len(logs)

    def bump(begin: int, end: int) -> _Change:
        inside = statistics.fmean(logs[begin:end])
        outside = statistics.fmean((*logs[:begin], *logs[end:]))
        rest = [y - (inside if begin <= x < end else outside) for x, y in enumerate(logs)]
        count = end - begin
        error = _noise(rest) * math.sqrt(1 / count + 1 / (n - count))
        size = math.expm1((inside - outside) * count / n)
        score = (inside - outside) / error
        return _Change(size, score, sum(r * r for r in rest), begin / n, end / n)

    least = _LEAST_PER_SIDE - 1
    parts = [
        (begin, end)
        for begin in range(least, n - 2 * least + 1)
        for end in range(begin + least, n - least + 1)
    ]
    return min((bump(*part) for part in parts), key=lambda change: change.rest)


def _noise(rest: Sequence[float]) -> float:
    """Standard deviation of a block, larger where neighbours are alike.

    A request that is longer than a block makes several blocks slow; they are no independent
    observations (first-order autoregression).
    """
    squares = sum(r * r for r in rest)
    alike = sum(a * b for a, b in itertools.pairwise(rest)) / squares if squares else 0.0
    alike = min(max(alike, 0.0), 0.9)
    deviation = math.sqrt(squares / (len(rest) - 2))
    return max(_LEAST_NOISE, deviation) * math.sqrt((1 + alike) / (1 - alike))


def _streams(evidence: Evidence) -> list[list[_Gap]]:
    """The gaps of each good request inside the window; none of what is exempt."""
    if evidence.point.is_open or evidence.adaptive_steps:
        return []
    firsts = sorted(flight.first for flight in evidence.flights)
    streams = []
    for flight, sample in zip(evidence.flights, evidence.samples, strict=True):
        if sample.error is not None:
            continue
        # A chunk has one verify, or more of them: `--stream-interval`, or chunks that merged.
        verifies = 0.0
        if evidence.speculation.enabled:
            verifies = max(1.0, sample.verify_calls / max(len(flight.chunk_times) - 1, 1))
        chunks = zip(flight.chunk_times, flight.chunk_tokens, strict=True)
        streams.append(
            [
                _Gap(
                    later,
                    (later - earlier) / (verifies or max(after - before, 1)),
                    bisect_right(firsts, earlier) == bisect_right(firsts, later),
                )
                for (earlier, before), (later, after) in itertools.pairwise(chunks)
                if earlier >= evidence.opened and later <= evidence.closed
            ]
        )
    return streams


def _verifies_per_chunk(evidence: Evidence) -> float:
    """Verifies, or tokens without speculation, in a chunk."""
    good = [s for s in evidence.good if s.chunks > 1]
    chunks = sum(s.chunks - 1 for s in good)
    units = sum(s.verify_calls or s.completion_tokens - 1 for s in good)
    return units / chunks if chunks else 1.0


def _blocks(gaps: Iterable[_Gap], evidence: Evidence, count: int, fewest: int) -> list[list[float]]:
    """The paces in each of `count` equal parts of the window; parts with too few are left out."""
    length = evidence.closed - evidence.opened
    blocks: list[list[float]] = [[] for _ in range(count)]
    for gap in gaps if count else ():
        blocks[min(count - 1, int(count * (gap.at - evidence.opened) / length))].append(gap.pace)
    return [paces for paces in blocks if len(paces) >= fewest]


def _middle(paces: Sequence[float]) -> float:
    """Mean of the middle half: rare prefills do not move it, and frequent ones average."""
    ordered, cut = sorted(paces), len(paces) // 4
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def _low(paces: Sequence[float]) -> float:
    """The lower quartile: prefills in half of the gaps do not move it."""
    return sorted(paces)[len(paces) // 4]


def _words(change: _Change, evidence: Evidence) -> str:
    unit = "verify" if evidence.speculation.enabled else "token"
    how = "rose" if change.size > 0 else "fell"
    where = "over the window"
    length_s = (evidence.closed - evidence.opened) * evidence.time_scale
    if change.at is not None and change.until is not None:
        where = (
            f"on the mean of the window, all of it between {change.at * length_s:.1f} and "
            f"{change.until * length_s:.1f} s"
        )
    elif change.at is not None:
        where = f"at {change.at * length_s:.1f} s of the window"
    return f"the time per {unit} {how} by {abs(change.size):.0%} {where}"
