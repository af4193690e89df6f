"""Connections to one server: requests encoded ahead, bodies handed on as they arrive.

Between the socket and the reader of a stream there is no task, no queue and no second copy: what
a chunk costs the client is taken from the cores that feed the server. TLS is asyncio's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import urlsplit

from runners.load.http_response import ResponseParser

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
