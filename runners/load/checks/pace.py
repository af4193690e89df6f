"""Checks of the server's pace: no trend, step, or slow requests, and no answers from a cache.

The pace is the time between two chunks of a stream, per verify (per token without speculation). So
acceptance does not change it. A prefill between two chunks does not count: each figure leaves out
the longest gaps. Two kinds of load are exempt: open loops, where arrivals change the batch and so
the pace, and adaptive servers, which change their own steps.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.load.checks.evidence import invalidates, warns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from results.records import RequestSample
    from runners.load.checks.evidence import Evidence

_DRIFT = 0.03
"""Change of the pace that is worth a warning."""
_UNSTEADY = 0.10
"""Change of the pace above which a window is invalid."""

_BLOCKS = 24
_FEWEST_BLOCKS = 8
_GAPS_PER_BLOCK = 12
_FEWEST_PER_SIDE = 3
"""Fewest blocks on each side of a step."""
_LEAST_NOISE = 0.002
"""Smallest standard deviation that is assumed for a block."""
_CLOCK_S = 1e-4
"""Smallest change of the pace that a client can measure, in real seconds. Chunks of a simulated
server at time scale 10 merge. It is 2 % of a GPU's gap of 5 ms."""

_TTFT_CHANGE = 0.25
"""Change of the time to first token that is worth a warning."""
_TTFTS_PER_BLOCK = 3

_SLOW = 1.5
"""Factor above which a request or a moment counts as slow."""
_FEWEST_REQUESTS = 8
_SLOW_REQUESTS = 0.05
"""Share of the requests that must be slow; at least two requests."""
_CYCLES_PER_MOMENT = 16
_FEWEST_MOMENTS = 20
_FEWEST_GAPS = 8
_UNEVEN_CLOCK_S = 1e-3

_TOO_FAST = 5.0
"""A server never becomes this many times faster than in its warm-up. The largest slowdown of a
warm-up by other work was 3.1 times. A cache answers at least 20 times faster."""
_FAST_SHARE = 0.1
"""Allowed share of answers that are too fast: fewer do not dominate the figures."""
_SHORTEST_STEPS = 2
"""Answers with fewer verifies have no pace."""


@dataclass(frozen=True, slots=True)
class _Gap:
    """Gap between two chunks of one stream.

    Attributes:
        end: Clock reading at the end of the gap.
        pace: Seconds per verify or token.
        decodes: Whether no request got its first tokens in the gap, so that it has no prefill.
    """

    end: float
    pace: float
    decodes: bool


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of the pace that was fitted to the blocks.

    Attributes:
        size: Relative slowdown; negative for a speed-up. For a part with another pace (`until`),
            the slowdown of the mean of the window.
        score: The change in units of its standard error.
        residual: Sum of squares that the fit does not explain.
        at: Position of a step in the window, from 0 to 1; `None` for a trend.
        until: Position of the end of a part with another pace.
    """

    size: float
    score: float
    residual: float
    at: float | None = None
    until: float | None = None


@invalidates
def unsteady(evidence: Evidence) -> str | None:
    """Closed loop: the pace changed so much that the figures describe more than one state."""
    change = _change(evidence)
    if change is None or abs(change.size) <= _UNSTEADY:
        return None
    return f"{_describe(change, evidence)}: warm up longer, or look for other users of the machine"


@warns
def drift(evidence: Evidence) -> str | None:
    """Closed loop: the pace changed a little, or the time to first token rose or fell."""
    if (change := _change(evidence)) is not None:
        return _describe(change, evidence) if abs(change.size) <= _UNSTEADY else None
    if (trend := _ttft_trend(evidence)) is None:
        return None
    how = "rose" if trend.size > 0 else "fell"
    return f"the time to first token {how} by {abs(trend.size):.0%} over the window"


def _ttft_trend(evidence: Evidence) -> _Change | None:
    """Return the significant trend of the time to first token, over requests as sent."""
    if evidence.point.is_open or evidence.adaptive_steps:
        return None
    inside = [f for f in evidence.streamed if evidence.opened <= f.sent <= evidence.closed]
    waits = [flight.ttft_s for flight in sorted(inside, key=lambda f: f.sent)]
    count = min(_BLOCKS, len(waits) // _TTFTS_PER_BLOCK)
    if count < _FEWEST_BLOCKS or min(waits) <= 0:
        return None
    blocks = [waits[n * len(waits) // count : (n + 1) * len(waits) // count] for n in range(count)]
    trend = _trend([math.log(statistics.median(block)) for block in blocks])
    grown_s = abs(trend.size) * statistics.median(waits)
    if abs(trend.score) <= 5.0 + 12 / count or abs(trend.size) < _TTFT_CHANGE:
        return None
    return trend if grown_s > _UNEVEN_CLOCK_S else None


@warns
def uneven(evidence: Evidence) -> str | None:
    """Closed loop: some requests or moments were much slower than the others."""
    if _change(evidence) is not None:
        return None
    streams = [[gap for gap in stream if gap.decodes] for stream in _streams(evidence)]
    scale, unit = 1000 * evidence.time_scale, evidence.unit
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
    if not gaps:
        return None
    cycle = statistics.median(gap.pace for gap in gaps) * _steps_per_chunk(evidence)
    by_length = int(evidence.length_s / (_CYCLES_PER_MOMENT * cycle or 1))
    count = min(len(gaps) // _CYCLES_PER_MOMENT, by_length)
    moments = [_low(paces) for paces in _blocks(gaps, evidence, count, _FEWEST_GAPS)]
    if len(moments) < _FEWEST_MOMENTS:
        return None
    fast, *_, slowest = statistics.quantiles(moments, n=10)
    if slowest <= max(_SLOW * fast, fast + _UNEVEN_CLOCK_S):
        return None
    return (
        f"a tenth of the window ran at {scale * slowest:.2f} ms per {unit} or slower, another "
        f"tenth at {scale * fast:.2f} ms or faster: the mean is right, but the pace is uneven"
    )


@invalidates
def too_fast(evidence: Evidence) -> str | None:
    """Answers came much faster than the warm-up decoded, so a cache probably answered.

    The whole time of an answer, including its prefill, is compared with the decode time of the
    warm-up. So a short prefill or a smaller batch does not make an answer look too fast. A short
    TTFT alone proves nothing: all lanes of the warm-up start at once, so their prefills wait.
    """
    if not evidence.decode_s or evidence.adaptive_steps:
        return None  # the steps of an adaptive server, and the time of its verifies, change
    judged = [s for s in evidence.good if _steps(s) >= _SHORTEST_STEPS]
    paces = [(s.e2e_s / _steps(s), s.prompt) for s in judged]
    usual = evidence.decode_s * evidence.time_scale
    fast = [(pace, prompt) for pace, prompt in paces if _TOO_FAST * pace < usual]
    if len(fast) <= _FAST_SHARE * len(judged):
        return None
    pace, prompt = min(fast)
    return (
        f"{len(fast)} of {len(judged)} answers were more than {_TOO_FAST:g} times as fast as the "
        f"warm-up; {prompt} took {1000 * pace:.3g} ms per {evidence.unit}, the warm-up "
        f"{1000 * usual:.3g} ms: a cache probably answered; bench the server itself"
    )


def _steps(sample: RequestSample) -> int:
    """Verifies, or tokens without speculation, after the prefill."""
    return sample.verify_calls or sample.completion_tokens - 1


@functools.lru_cache(maxsize=1)  # three checks of a window need it
def _change(evidence: Evidence) -> _Change | None:
    """Return the significant change of the pace with the best fit; `None` below 3 %."""
    streams = [stream for stream in _streams(evidence) if stream]
    gaps = [gap for stream in streams for gap in stream]
    decoding = [gap for gap in gaps if gap.decodes]
    if len(decoding) >= _BLOCKS * _GAPS_PER_BLOCK:
        gaps = decoding
    # Prompts differ in pace: at concurrency 1 each request is only one observation.
    most = min(_BLOCKS, max(_FEWEST_BLOCKS, len(streams)))
    count = min(most, len(gaps) // _GAPS_PER_BLOCK)
    if count < _FEWEST_BLOCKS:
        return None
    paces = [_middle(block) for block in _blocks(gaps, evidence, count, _GAPS_PER_BLOCK // 2)]
    if len(paces) < _FEWEST_BLOCKS or min(paces) <= 0:
        return None
    logs = [math.log(pace) for pace in paces]
    # The limit is higher for few blocks (Student's t), and for fits with more positions to try.
    limit = 4.0 + 12 / len(logs)
    fits = ((_trend(logs), 0), (_step(logs), 1), (_part(logs), 2))
    significant = [fit for fit, extra in fits if abs(fit.score) > limit + extra]
    if not significant:
        return None
    best = min(significant, key=lambda fit: fit.residual)
    least = max(_DRIFT, _CLOCK_S / statistics.median(paces))
    return best if abs(best.size) > least else None


def _trend(logs: Sequence[float]) -> _Change:
    """Fit a straight line to the blocks."""
    n = len(logs)
    slope, begin = statistics.linear_regression(range(n), logs)
    residuals = [y - begin - slope * x for x, y in enumerate(logs)]
    error = _noise(residuals) * math.sqrt(12 / (n * (n * n - 1)))
    return _Change(math.expm1(slope * n), slope / error, sum(r * r for r in residuals))


def _step(logs: Sequence[float]) -> _Change:
    """Fit the best split of the blocks into two parts."""
    n = len(logs)
    splits = range(_FEWEST_PER_SIDE, n - _FEWEST_PER_SIDE + 1)
    return min((_split(logs, k, n) for k in splits), key=lambda change: change.residual)


def _part(logs: Sequence[float]) -> _Change:
    """Fit the best part with another pace, with blocks before and after it."""
    n, least = len(logs), _FEWEST_PER_SIDE - 1
    parts = [
        (begin, end)
        for begin in range(least, n - 2 * least + 1)
        for end in range(begin + least, n - least + 1)
    ]
    return min((_split(logs, *part) for part in parts), key=lambda change: change.residual)


def _split(logs: Sequence[float], begin: int, end: int) -> _Change:
    """Compare the blocks from `begin` to `end` with all others."""
    n, count = len(logs), end - begin
    inside = statistics.fmean(logs[begin:end])
    outside = statistics.fmean((*logs[:begin], *logs[end:]))
    residuals = [y - (inside if begin <= x < end else outside) for x, y in enumerate(logs)]
    error = _noise(residuals) * math.sqrt(1 / count + 1 / (n - count))
    score, residual = (inside - outside) / error, sum(r * r for r in residuals)
    if end == n:
        return _Change(math.expm1(inside - outside), score, residual, begin / n)
    size = math.expm1((inside - outside) * count / n)
    return _Change(size, score, residual, begin / n, end / n)


def _noise(residuals: Sequence[float]) -> float:
    """Standard deviation of a block, larger if neighbours are alike (first-order autoregression).

    A request that is longer than a block makes several blocks slow, so they are not independent.
    """
    squares = sum(r * r for r in residuals)
    alike = sum(a * b for a, b in itertools.pairwise(residuals)) / squares if squares else 0.0
    alike = min(max(alike, 0.0), 0.9)
    deviation = math.sqrt(squares / (len(residuals) - 2))
    return max(_LEAST_NOISE, deviation) * math.sqrt((1 + alike) / (1 - alike))


@functools.lru_cache(maxsize=1)
def _streams(evidence: Evidence) -> list[list[_Gap]]:
    """Return the gaps of each good request in the window; empty for exempt loads."""
    if evidence.point.is_open or evidence.adaptive_steps:
        return []
    firsts = sorted(flight.first for flight in evidence.flights)
    streams = []
    for flight, sample in zip(evidence.flights, evidence.samples, strict=True):
        if sample.error is not None:
            continue
        # A chunk has one verify or more: with `--stream-interval`, or if chunks merged.
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


def _steps_per_chunk(evidence: Evidence) -> float:
    """Verifies, or tokens without speculation, per chunk."""
    good = [s for s in evidence.good if s.chunks > 1]
    chunks = sum(s.chunks - 1 for s in good)
    return sum(map(_steps, good)) / chunks if chunks else 1.0


def _blocks(gaps: Iterable[_Gap], evidence: Evidence, count: int, fewest: int) -> list[list[float]]:
    """Return the paces in `count` equal parts of the window; parts with too few are left out."""
    blocks: list[list[float]] = [[] for _ in range(count)]
    for gap in gaps if count else ():
        position = (gap.end - evidence.opened) / evidence.length_s
        blocks[min(count - 1, int(count * position))].append(gap.pace)
    return [paces for paces in blocks if len(paces) >= fewest]


def _middle(paces: Sequence[float]) -> float:
    """Mean of the middle half, which rare prefills do not change."""
    ordered, cut = sorted(paces), len(paces) // 4
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def _low(paces: Sequence[float]) -> float:
    """Lower quartile, which prefills in half of the gaps do not change."""
    return sorted(paces)[len(paces) // 4]


def _describe(change: _Change, evidence: Evidence) -> str:
    how = "rose" if change.size > 0 else "fell"
    where = "over the window"
    if change.at is not None and change.until is not None:
        where = (
            f"on the mean of the window, because of its part from "
            f"{change.at * evidence.window_s:.1f} to {change.until * evidence.window_s:.1f} s"
        )
    elif change.at is not None:
        where = f"at {change.at * evidence.window_s:.1f} s of the window"
    return f"the time per {evidence.unit} {how} by {abs(change.size):.0%} {where}"
