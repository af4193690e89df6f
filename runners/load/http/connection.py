"""Connections to one server: requests encoded ahead, bodies handed on as they arrive.

Between the socket and the reader of a stream there is no task, no queue and no second copy: what
a chunk costs the client is taken from the cores that feed the server. TLS is asyncio's.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# Shorter than the server's own (5 s, 0.5.23): a connection that the server is about to close is
# not used again, where it would look like a crash.
_KEEPALIVE_S = 2.0
_BUFFER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: Name or address, without the brackets of an IPv6 one.
        port: TCP port.
        secure: Whether it speaks TLS.
        prefix: What stands before every path (`""` or `"/llm"`).
    """

    host: str
    port: int
    secure: bool
    prefix: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Reads `http://host:port/prefix`.

        Raises:
            ValueError: It is no HTTP address.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is not an HTTP address like http://127.0.0.1:30000")
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        return cls(parts.hostname, port, secure, parts.path.rstrip("/"))

    def request(self, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """A whole POST request, as it goes over the wire."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"POST {self.prefix}{path} HTTP/1.1", f"Host: {host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode("latin-1") + body


class ConnectionLostError(ConnectionError):
    """The server closed a connection before the response was complete."""


class _Connection(asyncio.BufferedProtocol):
    """One connection; carries one exchange at a time."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._parser: ResponseParser | None = None
        self._done: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport
        self.open = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No check: another event loop's transports need not derive from asyncio's (uvloop).
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._parser is None:
            return
        if exc is None and self._parser.close():
            self._finish(None)
        else:
            reason = f": {exc}" if exc else ""
            self._finish(ConnectionLostError(f"closed by the server{reason}"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._parser is None:
            self.abort()  # nobody asked: such a connection is not used again
            return
        try:
            if self._parser.feed(bytes(self._buffer[:nbytes])):
                self._finish(None)
        except Exception as error:  # noqa: BLE001 - raised again in the task that waits for it
            self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            if error is None:
                self._done.set_result(None)
            else:
                self._done.set_exception(error)

    def abort(self) -> None:
        """Closes it now; the server sees that nobody waits any more."""
        self.open = False
        self._transport.abort()

    async def exchange(self, request: bytes, parser: ResponseParser) -> None:
        """Sends a request and follows its response to the end."""
        self._done = asyncio.get_running_loop().create_future()
        self._parser = parser
        reusable = False
        try:
            self._transport.write(request)
            await self._done
            reusable = parser.done and parser.keep_alive
        finally:
            self._parser = None
            self._done = None
            # Also where the response is whole, but who waited for it is cancelled: nobody would
            # close this connection.
            if not reusable:
                self.abort()


class ConnectionPool:
    """Connections to one server, opened as they are needed. Bound to one event loop."""

    def __init__(self, address: Address) -> None:
        """Connects to nothing yet."""
        self._address = address
        self._tls = ssl.create_default_context() if address.secure else None
        # One buffer for all: it is filled and emptied within one callback of the event loop.
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    async def exchange(self, request: bytes, on_body: Callable[[int, bytes], None]) -> int:
        """Sends a request, hands its body on, and returns the status.

        Args:
            request: As `Address.request` encodes it.
            on_body: Called with the status and each piece of the body, as it arrives. What it
                raises is raised here.

        Raises:
            OSError: No connection, or it was lost.
        """
        while (connection := self._reusable()) is not None:
            parser = ResponseParser(on_body)
            try:
                return await self._on(connection, request, parser)
            except ConnectionError:
                # The server may have closed an idle connection just now, as it may at any time.
                if parser.started:
                    raise
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(self._buffer),
            self._address.host,
            self._address.port,
            ssl=self._tls,
        )
        return await self._on(connection, request, ResponseParser(on_body))

    async def _on(self, connection: _Connection, request: bytes, parser: ResponseParser) -> int:
        self._busy.add(connection)
        try:
            await connection.exchange(request, parser)
        finally:
            self._busy.discard(connection)
        if connection.open:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        return parser.status

    def _reusable(self) -> _Connection | None:
        oldest = time.monotonic() - _KEEPALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.open and connection.idle_since >= oldest:
                return connection
            if connection.open:
                connection.abort()
        return None

    async def close(self) -> None:
        """Closes all connections."""
        for connection in (*self._idle, *self._busy):
            with contextlib.suppress(AttributeError):  # one that never came to be
                connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # asyncio closes the sockets in its next round


_STATUS_LINE = re.compile(rb"HTTP/1\.(\d) (\d{3})(?: |$)")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_PLAIN_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_LONGEST_LINE = 64 * 1024
_LONGEST_HEAD = 256 * 1024
_WITHOUT_BODY = frozenset({204, 304})


class NotHttpError(ConnectionError):
    """What the other side sends is not an HTTP/1.1 response."""


class _State(enum.Enum):
    HEAD = enum.auto()
    CHUNK_SIZE = enum.auto()
    CHUNK = enum.auto()
    CHUNK_END = enum.auto()
    TRAILER = enum.auto()
    LENGTH = enum.auto()
    UNTIL_CLOSE = enum.auto()
    DONE = enum.auto()


class ResponseParser:
    """Reads one response and hands its body on, piece by piece.

    Attributes:
        status: The status code; 0 until the head has arrived.
        keep_alive: Whether the connection can carry another request afterwards.
        started: Whether any byte of it has arrived.
    """

    __slots__ = ("_left", "_on_body", "_rest", "_state", "keep_alive", "started", "status")

    def __init__(self, on_body: Callable[[int, bytes], None]) -> None:
        """Starts before the first byte.

        Args:
            on_body: Called with the status and a piece of the body, never an empty one.
        """
        self.status = 0
        self.keep_alive = True
        self.started = False
        self._on_body = on_body
        self._state = _State.HEAD
        self._rest = b""
        self._left = 0

    @property
    def done(self) -> bool:
        """Whether the response is complete."""
        return self._state is _State.DONE

    def feed(self, raw: bytes) -> bool:
        """Takes what has arrived; says whether the response is complete.

        Raises:
            NotHttpError: It is no HTTP/1.1 response, or goes on after its end.
        """
        self.started = True
        at = 0
        if self._state is _State.HEAD:
            at = self._head(raw)
            if at < 0:
                return False
            raw = self._rest
            self._rest = b""
        if self._state is _State.UNTIL_CLOSE:
            if at < len(raw):
                self._on_body(self.status, raw[at:])
            return False
        if self._state is _State.LENGTH:
            at = self._counted(raw, at)
            if self._left == 0:
                self._state = _State.DONE
        elif self._state is not _State.DONE:
            at = self._chunked(raw, at)
        if self._state is _State.DONE and at < len(raw):
            raise NotHttpError(f"{len(raw) - at} bytes after the end of a response")
        return self._state is _State.DONE

    def close(self) -> bool:
        """Says whether the response is complete now that the connection has ended."""
        if self._state is _State.UNTIL_CLOSE:
            self._state = _State.DONE
        return self._state is _State.DONE

    def _head(self, raw: bytes) -> int:
        """Reads the head; the position of the body in `_rest`, or -1 for more to come."""
        self._rest = raw = self._rest + raw
        at = 0
        while True:
            end = raw.find(b"\r\n\r\n", at)
            if end < 0:
                if len(raw) > _LONGEST_HEAD or not b"HTTP/1.".startswith(raw[at : at + 7]):
                    raise NotHttpError(f"not an HTTP/1.1 response: {raw[at : at + 80]!r}")
                self._rest = raw[at:]
                return -1
            self._fields(raw[at:end].split(b"\r\n"))
            at = end + 4
            if self.status >= 200:  # 1xx are interim: the response itself follows
                return at

    def _fields(self, lines: list[bytes]) -> None:
        matched = _STATUS_LINE.match(lines[0])
        if matched is None:
            raise NotHttpError(f"not an HTTP/1.1 response: {lines[0][:80]!r}")
        self.status = int(matched[2])
        if self.status < 200:
            return
        fields: dict[bytes, bytes] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon:
                raise NotHttpError(f"a header line without a colon: {line[:80]!r}")
            fields[name.strip().lower()] = value.strip().lower()
        connection = fields.get(b"connection", b"")
        self.keep_alive = (
            b"keep-alive" in connection if matched[1] == b"0" else b"close" not in connection
        )
        coding = fields.get(b"transfer-encoding")
        length = fields.get(b"content-length")
        if self.status in _WITHOUT_BODY:
            self._state = _State.DONE
        elif coding is not None:
            if coding != b"chunked":
                raise NotHttpError(f"transfer-encoding {coding[:80]!r} is not supported")
            self._state = _State.CHUNK_SIZE
        elif length is not None:
            if not (length.isdigit() and len(length) <= 18):
                raise NotHttpError(f"content-length {length[:80]!r} is none")
            self._left = int(length)
            self._state = _State.LENGTH if self._left else _State.DONE
        else:
            self._state = _State.UNTIL_CLOSE
            self.keep_alive = False

    def _counted(self, raw: bytes, at: int) -> int:
        """Hands on what belongs to the counted part at hand; the position after it."""
        stop = min(at + self._left, len(raw))
        if stop > at:
            self._left -= stop - at
            self._on_body(self.status, raw[at:stop])
        return stop

    def _chunked(self, raw: bytes, at: int) -> int:
        end = len(raw)
        while at < end and self._state is not _State.DONE:
            if self._state is _State.CHUNK_SIZE and (after := self._whole_chunk(raw, at)):
                at = after
                continue
            if self._state is _State.CHUNK:
                at = self._counted(raw, at)
                if self._left == 0:
                    self._state = _State.CHUNK_END
                continue
            stop = raw.find(b"\n", at)
            if stop < 0:
                self._rest += raw[at:]
                if len(self._rest) > _LONGEST_LINE:
                    raise NotHttpError("a chunk's head does not end")
                return end
            line = raw[at:stop]
            if self._rest:
                line = self._rest + line
                self._rest = b""
            if line[-1:] != b"\r":
                raise NotHttpError(f"a chunk's head does not end with CR LF: {line[:80]!r}")
            at = stop + 1
            self._line(line[:-1])
        return at

    def _whole_chunk(self, raw: bytes, at: int) -> int:
        """Hands on a chunk that is here whole, as nearly all are; the position after it, or 0."""
        if self._rest or (size := _PLAIN_SIZE.match(raw, at)) is None:
            return 0
        begin = size.end()
        end = begin + int(size[1], 16)
        if end == begin or raw[end : end + 2] != b"\r\n":
            return 0
        self._on_body(self.status, raw[begin:end])
        return end + 2

    def _line(self, line: bytes) -> None:
        if self._state is _State.CHUNK_SIZE:
            matched = _CHUNK_SIZE.fullmatch(line)
            if matched is None:
                raise NotHttpError(f"not the size of a chunk: {line[:80]!r}")
            self._left = int(matched[1], 16)
            self._state = _State.CHUNK if self._left else _State.TRAILER
        elif self._state is _State.CHUNK_END:
            if line:
                raise NotHttpError(f"a chunk is longer than its size: {line[:80]!r}")
            self._state = _State.CHUNK_SIZE
        elif not line:  # the empty line after the trailers
            self._state = _State.DONE
