"""One request inside the simulated scheduler."""

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
    """A request, from its arrival to its last token. Times are the server's wall clock.

    Attributes:
        rid: Its id.
        prompt: The prompt's fingerprint.
        prompt_tokens: Tokens of the prompt.
        limit: Tokens of the answer, at most.
        answer: What the model says.
        offset: The prompt's number for the acceptance.
        arrived: Event loop time of its arrival.
        received_at: The same on the wall clock.
        noise: The prompt's factor on every time.
        stops: Whether it ends by itself at the answer's natural length.
        streaming: Whether the client streams.
        counted: Whether it is in the metrics; health checks are not.
        open_arrival: Whether it came when it came, whoever else was served: an open loop's.
        packed: The prompt's token ids, see `tokens.pack`.
        computed_tokens: Tokens of the prompt whose keys and values there are, cached ones included.
        thresholds: The acceptance's, see `acceptance.draw`.
        held: What it holds of the prefix cache.
        on_progress: Called at once wherever `progress` is set: a stream then costs no switch of
            tasks for a chunk.
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
        """The token ids so far."""
        return self.answer.ids[: self.completion_tokens]

    def record_verify(self, correct: int) -> None:
        """Accounts for a verify call; drafts beyond the limit count too, as in SGLang."""
        self.verify_calls += 1
        self.correct_drafts += correct
        while len(self.histogram) <= correct:
            self.histogram.append(0)
        self.histogram[correct] += 1

    @property
    def last(self) -> int:
        """Tokens at which it ends."""
        return min(self.limit, self.answer.natural_length) if self.stops else self.limit

    def emit(self, count: int) -> None:
        """Adds tokens, and ends the request where it is to end."""
        end = self.last
        self.completion_tokens = min(end, self.completion_tokens + count)
        if self.completion_tokens >= end:
            self.end(STOP if self.stops and end < self.limit else LENGTH)
        else:
            self._tell()

    def end(self, how: str) -> None:
        """Ends it."""
        self.finish = how
        self.finished_at = wall_time()
        self._tell()

    def _tell(self) -> None:
        self.progress.set()
        if self.on_progress is not None:
            self.on_progress()


def make_request(
    rid: str,
    input_ids: Sequence[int],
    limit: int,
    *,
    stops: bool,
    streaming: bool,
    arrived: float,
    noise: float,
    received_at: float,
    prompt: str,
    open_arrival: bool = False,
) -> Request:
    """Builds a request of a tokenized prompt; `prompt` is its fingerprint."""
    return Request(
        rid=rid,
        prompt=prompt,
        prompt_tokens=len(input_ids),
        limit=limit,
        answer=tokens.answer(prompt, limit, stops=stops),
        offset=tokens.offset(prompt),
        arrived=arrived,
        received_at=received_at,
        noise=noise,
        stops=stops,
        streaming=streaming,
        open_arrival=open_arrival,
        packed=tokens.pack(input_ids),
    )
