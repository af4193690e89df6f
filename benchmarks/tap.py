"""Tap the traffic between a client and a server, and apply our definitions to it.

Two runs differ, because server and machine differ in each. To compare definitions, both clients
must observe one run: the other client sends through the tap, which passes on all bytes and records
their times.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Self

import orjson

from runners.load.http.acceptance import accept_length
from runners.load.http.connection import ResponseParser
from runners.load.http.generate import GenerateReader
from runners.load.http.in_flight import InFlightRequest
from runners.load.window.measurement import sample_of

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Callable

    from results.records import RequestSample

_PIECE = 1 << 20
_NO_TEXT = b'{"text":"",'


@dataclasses.dataclass(slots=True)
class TappedFlight(InFlightRequest):
    """A request that passed through the tap.

    Attributes:
        first_text: Time of the first chunk with text; some clients end TTFT there.
    """

    first_text: float = 0.0


class Tap:
    """Pass all bytes between clients and a server; a context manager that listens on a free port.

    Attributes:
        flights: `/generate` streams since the last `/flush_cache`, in the order of sending;
            `prompt` is the sent text.
        info_s: Seconds of the last `/server_info` call.
    """

    def __init__(self, port: int, host: str = "127.0.0.1", *, delay_s: float = 0.0) -> None:
        """Set the server; nothing listens before the context is entered.

        Args:
            port: Port of the server.
            host: Host of the server.
            delay_s: Delay of each request in seconds, to imitate a slower client.
        """
        self._delay_s = delay_s
        self.flights: list[TappedFlight] = []
        self.info_s = 0.0
        self._server = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener: asyncio.Server | None = None
        self._writers: set[StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Address of the tap."""
        assert self._listener is not None
        host, port = self._listener.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def samples(self) -> list[RequestSample]:
        """Records of the requests; times count from the first send."""
        first = min(flight.sent for flight in self.flights)
        return [_sample(flight, first) for flight in self.flights]

    def accept_length(self) -> float | None:
        """Tokens per verify over all requests, from the server's counts."""
        samples = self.samples()
        return accept_length(
            sum(sample.verify_calls for sample in samples),
            sum(sample.correct_drafts for sample in samples),
        )

    def _accepted(self, client: StreamReader, back: StreamWriter) -> None:
        # Before its task begins, which may be cancelled before that.
        self._writers.add(back)
        task = self._loop.create_task(self._pass(client, back))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass(self, client: StreamReader, back: StreamWriter) -> None:
        try:
            server, forth = await asyncio.open_connection(*self._server)
            self._writers.add(forth)
            ear = _Ear(self)
            answers = self._loop.create_task(_copy(server, back, ear.answers))
            try:
                await _copy(client, forth, ear.asks, self._delay_s)
            finally:
                # Nobody is left to hear the rest.
                answers.cancel()
                _abort(forth)
                await asyncio.gather(answers, return_exceptions=True)
        except asyncio.CancelledError:
            pass  # the tap ends
        finally:
            _abort(back)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, "127.0.0.1", 0)

    def __enter__(self) -> Self:
        self._thread.start()
        self._listener = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _end(self) -> None:
        if self._listener is not None:
            self._listener.close()
        await asyncio.sleep(0.01)  # what it has accepted is known
        for task in (tasks := tuple(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:
            _abort(writer)
        await asyncio.sleep(0.01)  # aborted ones are closed


def _abort(writer: StreamWriter) -> None:
    writer.transport.abort()


async def _copy(
    source: StreamReader,
    sink: StreamWriter,
    hear: Callable[[float, bytes], None],
    delay_s: float = 0.0,
) -> None:
    with contextlib.suppress(ConnectionError):
        while raw := await source.read(_PIECE):
            # Before it is passed on: whoever has the end of an answer finds it noted here.
            hear(time.perf_counter(), raw)
            if delay_s:
                await asyncio.sleep(delay_s)
            sink.write(raw)
            await sink.drain()


class _Ear:
    """Read the traffic of one connection, request by request."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._flight: TappedFlight | None = None
        self._reader = GenerateReader()
        self._parser = ResponseParser(self._body)
        self._now = 0.0
        self._asked_info: float | None = None

    def asks(self, now: float, raw: bytes) -> None:
        """Read bytes of the client: a new request, or the rest of one."""
        start = raw[:40]
        # `/get_server_info` in 0.5.9.
        self._asked_info = now if b"server_info " in start else None
        if b" /flush_cache" in start:
            self._tap.flights.clear()
        if start.startswith(b"POST /generate "):
            self._flight = TappedFlight("", raw, sent=now)
            self._reader, self._parser = GenerateReader(), ResponseParser(self._body)
            self._tap.flights.append(self._flight)
        elif self._flight is not None:
            self._flight.body += raw

    def answers(self, now: float, raw: bytes) -> None:
        """Read bytes of the server."""
        if self._asked_info is not None:
            self._tap.info_s = now - self._asked_info
        self._now = now
        if self._flight is not None and self._parser.feed(raw):
            self._flight.answer = self._reader.answer()
            self._flight = None

    def _body(self, status: int, raw: bytes) -> None:
        tokens = self._reader.feed(raw) if status == 200 else None
        flight = self._flight
        if flight is not None and tokens is not None and tokens > flight.tokens:
            if not flight.first_text and _NO_TEXT not in raw:
                flight.first_text = self._now
            flight.chunk_times.append(self._now)
            flight.chunk_tokens.append(tokens)


def _sample(flight: InFlightRequest, first: float) -> RequestSample:
    text = orjson.loads(flight.body[flight.body.index(b"\r\n\r\n") :])["text"]
    is_whole = flight.answer is not None and flight.answer.error is None
    return dataclasses.replace(
        sample_of(flight, first),
        prompt=str(text),
        error=None if is_whole else "no whole answer",
    )
