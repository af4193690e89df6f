"""Server-sent events: the loop that all streams share, and `/generate`'s.

The hot path of the server: with 256 streams this runs some ten thousand times a second. What is
new since the last event costs two or three slices and one write.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Send

    from runners.simulated_server.hooks import Hooks
    from runners.simulated_server.jobs import Job
    from runners.simulated_server.replies import ReplyWriter

DONE = b"data: [DONE]\n\n"
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class EventWriter(abc.ABC):
    """Writes the events of one stream."""

    @abc.abstractmethod
    def events(self, index: int, sent: int) -> bytes:
        """What there is to say of answer `index` beyond its first `sent` tokens."""

    @abc.abstractmethod
    def end(self) -> bytes:
        """What closes the stream."""


class GenerateEvents(EventWriter):
    """The events of `/generate`.

    Args:
        writers: Of the answers.
        batch: Whether several were asked for, or one as a batch: then each event says which.
        incremental: `--incremental-streaming-output`: an event holds what is new only.
    """

    def __init__(self, writers: list[ReplyWriter], *, batch: bool, incremental: bool) -> None:
        self._writers = writers
        self._suffixes = [b',"index":%d' % i if batch else b"" for i in range(len(writers))]
        self._incremental = incremental

    def events(self, index: int, sent: int) -> bytes:
        writer = self._writers[index]
        before = sent if self._incremental else None
        if writer.request.finish is None:
            return writer.event(before, self._suffixes[index])
        return writer.last_event(before, self._suffixes[index])

    def end(self) -> bytes:
        return DONE


async def stream(job: Job, writer: EventWriter, send: Send, interval: int, hooks: Hooks) -> None:
    """Answers with events until all requests of the job have ended.

    An answer's first tokens are sent at once, then whenever `interval` of them are unsent
    (SGLang 0.5.23, `output_streamer.py`). A reader that lags gets the latest state in one event.
    """
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    left = dict(enumerate(job.requests))
    sent = [0] * len(left)
    progress = job.progress
    while left:
        await progress.wait()
        progress.clear()
        parts = []
        for i, request in list(left.items()):
            count, before = request.completion_tokens, sent[i]
            if request.finish is not None:
                del left[i]
            elif count == before or (before and count - before < interval):
                continue
            hooks.chunk(request)
            parts.append(writer.events(i, before))
            sent[i] = count
        if not left:
            parts.append(writer.end())
        if parts:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            await send({"type": "http.response.body", "body": body, "more_body": bool(left)})


async def stream_of_one(message: bytes, send: Send) -> None:
    """Answers with one event and the end: a refusal, say."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"data: " + message + b"\n\n" + DONE})
