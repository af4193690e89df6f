"""State of one request, from preparation to its last token."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runners.load.http.endpoint import Answer


@dataclass(slots=True)
class InFlightRequest:
    """One request; the client updates it as chunks arrive.

    Times are readings of `time.perf_counter` in real seconds. All processes of a machine share
    this clock.

    Attributes:
        prompt: Id of the prompt.
        body: Encoded HTTP body.
        request: Encoded HTTP request; only the client uses it.
        due: Scheduled time (open loop); 0 in a closed loop.
        sent: Time of sending; 0 before that.
        chunk_times: Arrival time of each chunk that carried tokens.
        chunk_tokens: Tokens of the answer so far, after each of these chunks.
        answer: The server's final report; `None` before the end.
        error: Reason of a failure; `None` for a success.
        timed_out: Whether the request exceeded the client's time-out.
        evenly: Whether `chunk_tokens` is an even spread of the final count, because the server
            counts tokens only at the end.
    """

    prompt: str
    body: bytes
    request: bytes | None = None
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
        """Arrival of the first tokens; `sent` before that."""
        return self.chunk_times[0] if self.chunk_times else self.sent

    @property
    def last(self) -> float:
        """Arrival of the newest tokens; `sent` before any."""
        return self.chunk_times[-1] if self.chunk_times else self.sent

    @property
    def tokens(self) -> int:
        """Tokens so far."""
        return self.chunk_tokens[-1] if self.chunk_tokens else 0

    @property
    def ttft_s(self) -> float:
        """Seconds from sending to the first tokens."""
        return self.first - self.sent

    @property
    def is_streamed(self) -> bool:
        """Whether the request succeeded and its tokens arrived in at least one chunk."""
        return self.error is None and bool(self.chunk_times)

    def gaps(self) -> list[float]:
        """Seconds between consecutive chunks."""
        return [later - earlier for earlier, later in pairwise(self.chunk_times)]

    def spread(self, tokens: int) -> None:
        """Replace chunk counts by token counts when only the final token count is known.

        The first chunk gets one token, as a prefill yields. The other chunks get equal parts of
        the remaining tokens.

        Args:
            tokens: Tokens of the answer; 0 if the server never reported a count.
        """
        self.evenly = True
        chunks = len(self.chunk_tokens)
        first = min(tokens, 1) if chunks > 1 else tokens
        for n in range(chunks):
            self.chunk_tokens[n] = first + (tokens - first) * n // max(chunks - 1, 1)

    def tokens_at(self, instant: float) -> int:
        """Tokens that had arrived by `instant`."""
        arrived = bisect_right(self.chunk_times, instant)
        return self.chunk_tokens[arrived - 1] if arrived else 0
