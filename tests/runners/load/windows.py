"""Windows made to order: a good one, and changes of it."""

from __future__ import annotations

import dataclasses
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runners.load.checks.evidence import Evidence
from runners.load.http.endpoint import Answer
from runners.load.http.in_flight import InFlightRequest
from runners.load.prompts.prompts import Prompt
from runners.load.window.measurement import sample_of
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.records import RequestSample

EAGLE3 = Speculation("EAGLE3", 3, 1, 4)
PLAIN = Speculation()
TOKENS = 65
# 64 tokens after the prefill's, in verifies that accept 0 to 3 drafts.
_ACCEPTED = [[1, 2, 0, 1], [2, 0, 3, 1], [0, 1, 1, 2], [3, 1, 0, 0], [1, 1, 2, 2]]


@dataclass
class Request:
    """One request; times in seconds after the window's opening."""

    prompt: str
    sent: float
    pace: Callable[[float], float]
    accepted: list[int] | None
    tokens: int = TOKENS
    error: str | None = None
    timed_out: bool = False
    late: float = 0.0
    answer: dict[str, Any] = field(default_factory=dict)
    ids: tuple[int, ...] | None = None
    lose: int = 0
    claim: int = 1
    """Tokens that the first chunk claims."""
    one_piece: bool = False
    pause: float = 0.0
    first: float = 0.1

    def flight(self) -> InFlightRequest:
        now, count = self.sent + self.first, 1
        times, counts = [now], [count]
        pattern = self.accepted if self.accepted is not None else [0]
        verify = correct = 0
        histogram = [0] * 4
        while count < self.tokens:
            k = pattern[verify % len(pattern)]
            now += self.pace(now) + (self.pause if verify == len(pattern) else 0.0)
            verify, correct, histogram[k] = verify + 1, correct + k, histogram[k] + 1
            count = min(self.tokens, count + 1 + k)
            times.append(now)
            counts.append(count)
        if self.one_piece:
            times, counts = times[-1:], counts[-1:]
        counts = [max(1, n - self.lose) for n in counts]
        if self.claim > 1:
            times = [times[0], *(t for t, n in zip(times, counts, strict=True) if n > self.claim)]
            counts = [self.claim, *(n for n in counts if n > self.claim)]
        values: dict[str, Any] = {
            "completion_tokens": self.tokens,
            "prompt_tokens": 9,
            "cached_tokens": 0,
            "finish_reason": "length",
            "retractions": 0,
            "output_ids": self.ids
            or tuple((int(self.prompt[-3:]) + 37 * n) % 999 for n in range(self.tokens)),
        }
        if self.accepted is not None:
            values |= {
                "verify_calls": verify,
                "correct_drafts": correct,
                "histogram": tuple(histogram),
                "proposed_drafts": 3 * verify,
            }
        return InFlightRequest(
            self.prompt,
            b"",
            due=self.sent - self.late,
            sent=self.sent,
            chunk_times=array("d", times),
            chunk_tokens=array("q", counts),
            answer=None if self.error else Answer(**(values | self.answer)),
            error=self.error,
            timed_out=self.timed_out,
        )


@dataclass
class Load:
    """A load that a test changes before it is judged."""

    speculation: Speculation = EAGLE3
    point: OperatingPoint = field(default_factory=lambda: OperatingPoint(2))
    workload: dict[str, Any] = field(default_factory=dict)
    count: int = 16
    pace: Callable[[float], float] = lambda _now: 0.05
    gap: float | None = None
    """Seconds between arrivals; lanes of a closed loop where there is none."""
    together: bool = False
    """Whether all lanes of a closed loop send their first request at once."""
    prompts: list[Prompt] | None = None
    requests: list[Request] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lanes = self.point.concurrency or 1
        # A request without speculation takes 0.1 s and 64 steps.
        apart = 0.0 if self.together else (0.1 + (TOKENS - 1) * self.pace(0.0)) / lanes
        free = [lane * apart for lane in range(lanes)]
        for n in range(self.count):
            accepted = _varied(n) if self.speculation.enabled else None
            request = Request(f"chat/{n:03d}", 0.0, self.pace, accepted)
            if self.gap is not None:
                request.sent = n * self.gap
            else:
                lane = min(range(len(free)), key=free.__getitem__)
                request.sent = free[lane]
                free[lane] = request.flight().last
            self.requests.append(request)

    def evidence(self) -> Evidence:
        flights = [request.flight() for request in self.requests]
        samples = [
            _sample(flight, request) for flight, request in zip(flights, self.requests, strict=True)
        ]
        if self.gap is not None:
            closed = max(flight.sent for flight in flights)
        else:
            lanes = self.point.concurrency or 1
            closed = sorted(flight.last for flight in flights)[-min(lanes, len(flights))]
        prompts = self.prompts or [
            Prompt(request.prompt, f"{request.prompt[::-1]} why?") for request in self.requests
        ]
        workload = Workload(
            (("chat", 1.0),), self.workload.pop("output_tokens", TOKENS), (self.point,),
            **self.workload,
        )  # fmt: skip
        values = {
            "opened": 0.0,
            "closed": closed,
            "window_tokens": sum(flight.tokens_at(closed) for flight in flights),
            "client_cpu_share": 0.1,
        }
        return Evidence(
            samples, flights, prompts, self.point, workload, self.speculation,
            **(values | self.more),
        )  # fmt: skip


def _varied(n: int) -> list[int]:
    return [*_ACCEPTED[n % 5], *_ACCEPTED[n // 5 % 5], n % 4]


def _sample(flight: InFlightRequest, request: Request) -> RequestSample:
    return dataclasses.replace(sample_of(flight, 0.0), error=request.error, late_s=request.late)
