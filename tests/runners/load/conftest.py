"""A scripted HTTP server on loopback: it answers exactly what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BODIES = Path(__file__).parents[2] / "data" / "bodies"

# A reply is (status, pieces); a piece is bytes to send, seconds to wait, "drop" (cut the
# connection without a word) or "hang" (say nothing more, for ever).
Piece = bytes | float | str
Reply = tuple[int, list[Piece]]


class ScriptedServer:
    """Serves in a thread of its own; keeps a log of the requests that it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.flush_statuses: list[int] = []
        """Statuses of the next flushes; 200 when used up."""
        self.server_info: dict[str, Any] | bytes | str = {}
        """The body, or a piece such as "hang"; 404 where there is none."""
        self.info_status = 200
        self.info_path = "/server_info"
        self.generate: Callable[[int, dict[str, Any]], Reply] = lambda _n, body: answer(
            body["sampling_params"]["max_new_tokens"]
        )
        """Called with the request's number, from 0, warm-up included, and its body."""
        self.routes: dict[str, Callable[[int, Any], Reply]] = {}
        """Further paths; called with the path's request number, from 0, and its body."""
        self.in_flight = 0
        self.most_in_flight = 0
        self.authorization: set[str | None] = set()
        self.arrival_headers: set[str | None] = set()
        """`x-tuner-arrival` of the requests to generate."""
        self._generated = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self.url = ""

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def bodies(self, path: str) -> list[Any]:
        return [body for seen, body in self.seen if seen == path]

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *header_lines = head.strip().split("\r\n")
        headers = dict(header.lower().split(": ", 1) for header in header_lines)
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        path = line.split()[1]
        body = json.loads(raw) if raw else None
        self.seen.append((path, body))
        self.authorization.add(headers.get("authorization"))
        if path == "/generate":
            self.arrival_headers.add(headers.get("x-tuner-arrival"))
        status, pieces = self._reply(path, body)
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: text/event-stream\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        if path == "/generate":
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._send(pieces, writer)
        finally:
            if path == "/generate":
                self.in_flight -= 1

    async def _send(self, pieces: list[Piece], writer: asyncio.StreamWriter) -> bool:
        for piece in pieces:
            if isinstance(piece, bytes):
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
                # One packet per event, over time, so that requests overlap as at a real server.
                await asyncio.sleep(0.001)
            elif piece == "drop":
                writer.transport.abort()
                return False
            elif piece == "hang":
                await asyncio.Event().wait()
            else:
                await asyncio.sleep(float(piece))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _reply(self, path: str, body: Any) -> Reply:
        if path in self.routes:
            return self.routes[path](self.paths().count(path) - 1, body)
        if path == "/generate":
            number, self._generated = self._generated, self._generated + 1
            return self.generate(number, body)
        if path == "/flush_cache":
            status = self.flush_statuses.pop(0) if self.flush_statuses else 200
            return status, [b"Cache flushed.\n" if status == 200 else b"Flush cache failed.\n"]
        if path == "/abort_request":
            return 200, []
        if path == self.info_path and (self.server_info or self.info_status != 200):
            info = self.server_info
            piece = json.dumps(info).encode() if isinstance(info, dict) else info
            return self.info_status, [piece] if piece else []
        return 404, [b'{"detail":"Not Found"}']


def answer(
    tokens: int,
    *,
    per_chunk: int = 1,
    wait_s: float = 0.0,
    finish: dict[str, Any] | None = None,
    **meta: Any,
) -> Reply:
    """A stream as 0.5.23 sends it: cumulative chunks, accounts in the last one."""
    events: list[Piece] = []
    counts = [1, *range(1 + per_chunk, tokens, per_chunk), tokens] if tokens > 1 else [tokens]
    for count in counts:
        last = count == counts[-1]
        info: dict[str, Any] = {
            "id": "r",
            "finish_reason": (finish or {"type": "length", "length": tokens}) if last else None,
            "prompt_tokens": 7,
            "completion_tokens": count,
            "cached_tokens": 0,
        }
        if last:
            info |= meta
        event = {"text": "x" * count, "output_ids": list(range(count)), "meta_info": info}
        events.append(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")
        if wait_s:
            events.append(wait_s)
    return 200, [*events, b"data: [DONE]\n\n"]


def recorded(name: str) -> Reply:
    """A stream as a real server sent it, event by event."""
    text = (BODIES / name).read_bytes()
    return 200, [event + b"\n\n" for event in text.strip().split(b"\n\n")]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        yield scripted


@pytest.fixture(name="answer")
def answer_fixture() -> Callable[..., Reply]:
    return answer


@pytest.fixture(name="recorded")
def recorded_fixture() -> Callable[[str], Reply]:
    return recorded


@pytest.fixture(name="bodies")
def bodies_fixture() -> Path:
    return BODIES
