"""Windows of a simple batching engine with realistic noise, without a clock or a network."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from results.records import RequestSample
from runners.load.checks.evidence import Evidence
from runners.load.http.endpoint import Answer
from runners.load.http.in_flight import InFlightRequest
from search_spaces.workload import OperatingPoint, Workload

from ..windows import EAGLE3, PLAIN

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

TOKENS = 128
CYCLE_S, PREFILL_S = 0.01, 0.02
_MERGED_S = 0.0003
"""Chunks closer than this arrive in one read."""


class _Request:
    def __init__(self, prompt: str, sent: float, factor: float, slower: float) -> None:
        self.prompt, self.sent, self.factor, self.slower = prompt, sent, factor, slower
        self.times: list[float] = []
        self.tokens: list[int] = []
        self.verifies = 0
        self.progress = 0.0

    def arrives(self, now: float, tokens: int) -> None:
        tokens = min(TOKENS, tokens + (self.tokens[-1] if self.tokens else 0))
        if len(self.times) > 1 and now - self.times[-1] < _MERGED_S:
            self.times[-1], self.tokens[-1] = max(now, self.times[-1]), tokens
        else:
            self.times.append(max(now, self.times[-1] + 1e-5) if self.times else now)
            self.tokens.append(tokens)

    def decodes(self, now: float, tokens: int) -> None:
        """Takes part in a cycle; in every n-th only, if it is so many times slower."""
        self.progress += 1 / self.slower
        if self.progress > 1 - 1e-9:
            self.progress -= 1
            self.verifies += 1
            self.arrives(now, tokens)


def window(
    draw: random.Random,
    lanes: int,
    *,
    speculative: bool,
    count: int,
    pace: Callable[[float], float] = lambda _now: 1.0,
    slower: Callable[[int], float] = lambda _n: 1.0,
    scale: float = 1.0,
) -> Evidence:
    """A closed loop at an engine that prefills what waits, and then decodes one cycle for all.

    Args:
        draw: Noise: of cycles 3 %, of prompts 1.5 %, of a chunk's arrival 0.2 ms; one cycle of a
            hundred is half as long again, and context makes the end of an answer 5 % slower.
        lanes: Users.
        speculative: Whether a cycle is a verify that accepts 0 to 3 drafts.
        count: Requests.
        pace: How much slower the engine is at a time.
        slower: How much slower a request is than its batch.
        scale: The window in real time is so many times shorter.
    """
    request_s = TOKENS * CYCLE_S / (2 if speculative else 1)
    begins = [lane * request_s / lanes for lane in range(lanes)]
    running: list[_Request | None] = [None] * lanes
    every: list[_Request] = []
    now, opened, closed = 0.0, math.inf, math.inf
    while len(every) < count or any(running):
        fresh = []
        for lane in range(lanes):
            if running[lane] is None and len(every) < count and now >= begins[lane]:
                n = len(every)
                request = _Request(str(n), now, 1 + draw.gauss(0, 0.015), slower(n))
                running[lane] = request
                every.append(request)
                fresh.append(request)
        if all(running):
            opened = min(opened, now)
        elif len(every) == count:
            closed = min(closed, now)
        if fresh:
            now += PREFILL_S * len(fresh) * pace(now) * (1 + abs(draw.gauss(0, 0.1)))
            for request in fresh:
                request.arrives(now + draw.expovariate(5000), 1)
        live = [request for request in running if request is not None]
        factors = [r.factor * (1 + 0.05 * r.tokens[-1] / TOKENS) for r in live] or [1.0]
        noise = (1 + abs(draw.gauss(0, 0.03))) * (1.5 if draw.random() < 0.01 else 1.0)
        now += CYCLE_S * pace(now) * noise * sum(factors) / len(factors)
        for request in live:
            accepted = draw.choice([0, 0, 1, 1, 2, 3]) if speculative else 0
            request.decodes(now + draw.expovariate(5000), 1 + accepted)
        running = [r if r is not None and r.tokens[-1] < TOKENS else None for r in running]
    closed = min(closed, now)
    point = OperatingPoint(lanes)
    return Evidence(
        [_sample(request, speculative=speculative) for request in every],
        [_flight(request, scale) for request in every],
        (), point, Workload((("chat", 1.0),), TOKENS, (point,)), EAGLE3 if speculative else PLAIN,
        opened=opened / scale, closed=closed / scale, window_tokens=1, time_scale=scale,
    )  # fmt: skip


def _flight(request: _Request, scale: float) -> InFlightRequest:
    return InFlightRequest(
        request.prompt,
        b"",
        sent=request.sent / scale,
        chunk_times=array("d", [at / scale for at in request.times]),
        chunk_tokens=array("q", request.tokens),
        answer=Answer(completion_tokens=TOKENS),
    )


def _sample(request: _Request, *, speculative: bool) -> RequestSample:
    return RequestSample(
        prompt=request.prompt,
        sent_s=request.sent,
        ttft_s=request.times[0] - request.sent,
        e2e_s=request.times[-1] - request.sent,
        prompt_tokens=9,
        completion_tokens=TOKENS,
        cached_tokens=0,
        verify_calls=request.verifies if speculative else 0,
        chunks=len(request.times),
    )
