"""One request in the simulated scheduler."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runners.simulated_server.engine import tokens
from runners.simulated_server.engine.clock import wall_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runners.simulated_server.engine.prefix_cache import Node

LENGTH = "length"
STOP = "stop"
ABORT = "abort"


@dataclass(slots=True, eq=False)
class Request:
    """A request, from its arrival to its last token. Times are wall-clock times of the server.

    Attributes:
        prompt: Fingerprint of the prompt.
        offset: The prompt's number for the acceptance, see `tokens.offset`.
        arrived: Time of arrival on the event loop's clock.
        received_at: Time of arrival on the wall clock.
        noise: Noise factor of the prompt.
        stops: Whether the request ends at the answer's natural length.
        counted: Whether metrics count the request; health checks are not counted.
        open_arrival: Whether the request belongs to an open loop.
        packed: Token ids of the prompt, see `tokens.pack`.
        computed_tokens: Prompt tokens in the KV cache, including cached prefixes.
        thresholds: Acceptance thresholds, see `acceptance.draw`.
        held: Node of the prefix cache that the request holds.
        on_progress: Called when `progress` is set; saves a task switch per streamed chunk.
    """

    rid: str
    prompt: str
    prompt_tokens: int
    limit: int
    answer: tokens.Answer
    offset: float
    arrived: float
    received_at: float
    noise: float
    stops: bool
    streaming: bool
    counted: bool = True
    open_arrival: bool = False
    packed: bytes = b""
    computed_tokens: int = 0
    thresholds: tuple[float, ...] = ()
    held: Node | None = None
    on_progress: Callable[[], None] | None = None
    completion_tokens: int = 0
    cached_tokens: int = 0
    verify_calls: int = 0
    correct_drafts: int = 0
    histogram: list[int] = field(default_factory=list)
    finish: str | None = None
    forward_entry_at: float = 0.0
    prefill_finished_at: float = 0.0
    finished_at: float = 0.0
    progress: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def output_ids(self) -> list[int]:
        return self.answer.ids[: self.completion_tokens]

    def record_verify(self, correct: int) -> None:
        """Count a verify call; drafts beyond the limit count too, as in SGLang."""
        self.verify_calls += 1
        self.correct_drafts += correct
        while len(self.histogram) <= correct:
            self.histogram.append(0)
        self.histogram[correct] += 1

    @property
    def last(self) -> int:
        """Number of tokens at which the request ends."""
        return min(self.limit, self.answer.natural_length) if self.stops else self.limit

    def emit(self, count: int) -> None:
        """Add tokens, and end the request at its last token."""
        end = self.last
        self.completion_tokens = min(end, self.completion_tokens + count)
        if self.completion_tokens >= end:
            self.end(STOP if self.stops and end < self.limit else LENGTH)
        else:
            self._notify()

    def end(self, how: str) -> None:
        self.finish = how
        self.finished_at = wall_time()
        self._notify()

    def _notify(self) -> None:
        self.progress.set()
        if self.on_progress is not None:
            self.on_progress()


def make_request(
    rid: str,
    input_ids: Sequence[int],
    limit: int,
    *,
    arrived: float,
    stops: bool = False,
    streaming: bool = False,
    open_arrival: bool = False,
) -> Request:
    """Make a request of at most `limit` tokens; see `Request` for the other values."""
    prompt = tokens.fingerprint(input_ids)
    return Request(
        rid=rid,
        prompt=prompt,
        prompt_tokens=len(input_ids),
        limit=limit,
        answer=tokens.answer(prompt, limit, stops=stops),
        offset=tokens.offset(prompt),
        arrived=arrived,
        received_at=wall_time(arrived),
        noise=1.0,
        stops=stops,
        streaming=streaming,
        open_arrival=open_arrival,
        packed=tokens.pack(input_ids),
    )
