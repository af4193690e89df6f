"""Server-sent events: the common loop of all streams.

This is the hot path of the server: 256 streams run it about ten thousand times a second. An event
costs a few slices and one direct write to the connection, in the engine's progress call. No task is
woken, and no library frames the event.
"""

from __future__ import annotations

import abc
import asyncio
from typing import TYPE_CHECKING

from runners.simulated_server.api.jobs import CONNECTION
from runners.simulated_server.api.state import ConnectionCutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Send

    from runners.simulated_server.api.jobs import Job

    _Write = Callable[[Callable[[], bytes]], bool]

DONE = b"data: [DONE]\n\n"
_END = b"\n\n"
"""End of an event; JSON never contains it."""
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]
_UNREAD = 256 * 1024
"""Maximum buffered bytes for a slow reader, which then gets the latest state in one event."""


class EventWriter(abc.ABC):
    """Writes the events of one stream."""

    @abc.abstractmethod
    def events(self, index: int, sent: int) -> bytes:
        """Return the events of answer `index` after its first `sent` tokens."""

    @abc.abstractmethod
    def end(self) -> bytes:
        """Return the end of the stream."""


class _Stream:
    """A running stream: writes events in the engine's calls until all answers have ended."""

    def __init__(self, job: Job, writer: EventWriter, interval: int, write: _Write) -> None:
        self._requests = job.requests
        self._writer = writer
        self._interval = interval
        self._write = write
        self._hooks = job.hooks
        self._sent = [0] * len(job.requests)
        self._left = len(job.requests)
        self._ended: list[bool] = [False] * len(job.requests)
        self._closing: list[bytes] = []
        self._cut: ConnectionCutError | None = None
        self._over = asyncio.Event()

    async def run(self) -> bytes:
        """Run the stream; return the last events, which are not sent yet.

        The first tokens of an answer are sent at once, later ones when `interval` of them are
        unsent (SGLang 0.5.23, `output_streamer.py`).
        """
        for index, request in enumerate(self._requests):
            push = self._pusher(index)
            request.on_progress = push
            push()  # progress before this call
        await self._over.wait()
        if self._cut is not None:
            raise self._cut
        return b"".join((*self._closing, self._writer.end()))

    def _pusher(self, index: int) -> Callable[[], None]:
        request, sent, interval = self._requests[index], self._sent, self._interval
        events, write, chunk = self._writer.events, self._write, self._hooks.chunk

        def push() -> None:
            if self._over.is_set():
                return
            before = sent[index]
            count = request.completion_tokens
            if request.finish is not None:
                self._end(index)
            elif count > before and (not before or count - before >= interval):
                try:
                    chunk(request)
                except ConnectionCutError as error:
                    self._stop(error)
                    return
                if write(lambda: events(index, before)):
                    sent[index] = count

        return push

    def _end(self, index: int) -> None:
        if self._ended[index]:
            return
        self._ended[index] = True
        self._left -= 1
        try:
            self._hooks.chunk(self._requests[index])
        except ConnectionCutError as error:
            self._stop(error)
            return
        last = self._writer.events(index, self._sent[index])
        if self._left:
            if not self._write(lambda: last):
                self._closing.append(last)
        else:
            self._closing.append(last)
            self._over.set()

    def _stop(self, error: ConnectionCutError) -> None:
        self._cut = error
        self._over.set()


async def stream(job: Job, writer: EventWriter, send: Send, interval: int) -> None:
    """Send events until all requests of the job have ended."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    transport = CONNECTION.get()
    if transport is None:
        raise RuntimeError("the stream's request has no connection")
    write = _chunked(transport) if job.http_version == "1.1" else _plain(transport)
    await _send_apart(send, await _Stream(job, writer, interval, write).run())


async def _send_apart(send: Send, body: bytes) -> None:
    """Send each event, `[DONE]` included, in a separate chunk, as SGLang 0.5.23 does."""
    for event in body.split(_END)[:-1]:
        part = {"type": "http.response.body", "body": event + _END, "more_body": True}
        await send(part)
    await send({"type": "http.response.body", "body": b""})


def _chunked(transport: asyncio.Transport) -> _Write:
    """Return the writer of HTTP/1.1's chunked encoding."""
    waiting, put = transport.get_write_buffer_size, transport.write

    def write(make: Callable[[], bytes]) -> bool:
        if waiting() > _UNREAD or transport.is_closing():
            return False
        body = make()
        if body.find(_END) == len(body) - len(_END):
            put(b"%x\r\n%b\r\n" % (len(body), body))
        else:  # several, or none
            events = [event + _END for event in body.split(_END)[:-1]]
            put(b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events))
        return True

    return write


def _plain(transport: asyncio.Transport) -> _Write:
    """Return the writer of HTTP/1.0, where the end of the connection ends the body."""

    def write(make: Callable[[], bytes]) -> bool:
        if transport.get_write_buffer_size() > _UNREAD or transport.is_closing():
            return False
        transport.write(make())
        return True

    return write


async def stream_of_one(message: bytes, send: Send) -> None:
    """Send one event and the end of the stream."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await _send_apart(send, b"data: " + message + _END + DONE)
