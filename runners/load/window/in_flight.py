"""One request on its way."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runners.load.http.answer import Answer


@dataclass(slots=True)
class InFlightRequest:
    """One request on its way; what is known of it grows as chunks arrive.

    Times are readings of `time.perf_counter` in real seconds: one clock for all processes of a
    machine.

    Attributes:
        prompt: The prompt's id.
        body: The HTTP body, encoded ahead.
        request: The prepared HTTP request, private to the client.
        due: When it is to be sent (open loop); 0 in a closed one.
        sent: When it was sent.
        chunk_times: When each chunk that carried tokens arrived.
        chunk_tokens: Tokens of the answer so far, after each of them.
        answer: The server's accounts; `None` until it has ended.
        error: Why it failed; `None` for a success.
        timed_out: Whether it failed because it outlived the client's time-out.
        evenly: Whether `chunk_tokens` are the answer's tokens spread evenly over its chunks, as the
            server counted only the whole.
    """

    prompt: str
    body: bytes
    request: Any = None
    due: float = 0.0
    sent: float = 0.0
    chunk_times: array[float] = field(default_factory=lambda: array("d"))
    chunk_tokens: array[int] = field(default_factory=lambda: array("q"))
    answer: Answer | None = None
    error: str | None = None
    timed_out: bool = False
    evenly: bool = False

    @property
    def first(self) -> float:
        """When the first tokens arrived; `sent` before that."""
        return self.chunk_times[0] if self.chunk_times else self.sent

    @property
    def last(self) -> float:
        """When the last tokens arrived; `sent` before any."""
        return self.chunk_times[-1] if self.chunk_times else self.sent

    @property
    def tokens(self) -> int:
        """Tokens so far."""
        return self.chunk_tokens[-1] if self.chunk_tokens else 0

    def spread(self, tokens: int) -> None:
        """Turns counts of chunks into counts of tokens, where only the whole count is known.

        The first chunk is given one token, as a prefill yields, and the others equal parts of the
        rest; none at all where `tokens` is 0, as of an answer that was never accounted for.
        """
        self.evenly = True
        chunks = len(self.chunk_tokens)
        first = min(tokens, 1) if chunks > 1 else tokens
        for n in range(chunks):
            self.chunk_tokens[n] = first + (tokens - first) * n // max(chunks - 1, 1)

    def tokens_at(self, instant: float) -> int:
        """Tokens that had arrived by `instant`."""
        from bisect import bisect_right  # noqa: PLC0415

        arrived = bisect_right(self.chunk_times, instant)
        return self.chunk_tokens[arrived - 1] if arrived else 0
