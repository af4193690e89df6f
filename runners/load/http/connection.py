"""Connections to one server: requests are encoded ahead, and bodies are passed on as they arrive.

There is no task, queue or second copy between the socket and the reader of a stream: CPU time that
the client needs per chunk is taken from the cores that feed the server. `httptools` parses HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import urlsplit

import httptools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# Shorter than the server's keep-alive time (5 s, 0.5.23). A connection that the server is closing
# must not be used again: that would look like a crash.
_KEEPALIVE_S = 2.0
_BUFFER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server.

    Attributes:
        host: Name or IP address; an IPv6 address has no brackets.
        port: TCP port.
        secure: Whether to use TLS.
        prefix: First part of every path (`""` or `"/llm"`).
    """

    host: str
    port: int
    secure: bool
    prefix: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse `http://host:port/prefix`.

        Raises:
            ValueError: `url` is not an HTTP address.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is not an HTTP address; use http://host:port")
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        return cls(parts.hostname, port, secure, parts.path.rstrip("/"))

    def request(self, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Encode a complete POST request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"POST {self.prefix}{path} HTTP/1.1", f"Host: {host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode("latin-1") + body


class ConnectionLostError(ConnectionError):
    """The server closed a connection before the response was complete."""


class NotHttpError(ConnectionError):
    """The server sent bytes that are not an HTTP/1.1 response."""


class ResponseParser:
    """Parse one response and pass on its body piece by piece.

    Attributes:
        status: Status code; 0 before the headers are complete.
        keep_alive: Whether the connection can carry another request afterwards.
        started: Whether any byte of the response has arrived.
        done: Whether the response is complete.
    """

    def __init__(self, on_body: Callable[[int, bytes], None]) -> None:
        """Prepare for the first byte.

        Args:
            on_body: Called with the status and each non-empty piece of the body.
        """
        self.status = 0
        self.keep_alive = True
        self.started = False
        self.done = False
        self._on_body = on_body
        self._has_length = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, raw: bytes | memoryview) -> bool:
        """Parse new bytes; return whether the response is complete.

        Raises:
            NotHttpError: The bytes are not an HTTP/1.1 response, or follow its end.
        """
        self.started = True
        if self._parser is None:
            raise NotHttpError(f"{len(raw)} bytes after the end of a response")
        try:
            self._parser.feed_data(raw)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise NotHttpError(f"not an HTTP/1.1 response: {error}") from error
        if self.done:
            # The two objects refer to each other, and garbage collection is off in a window.
            self._parser = None
        return self.done

    def close(self) -> bool:
        """Return whether the response is complete now that the connection has ended."""
        if self.status and not self._has_length:
            self.done = True
        return self.done

    # `httptools` calls these methods by name.

    def on_message_begin(self) -> None:
        if self.done:
            raise NotHttpError("a second response follows the end of the first one")

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"content-length":
                self._has_length = True
            case b"transfer-encoding":
                self._has_length = True
                if value.lower() != b"chunked":
                    raise NotHttpError(f"transfer-encoding {value[:80]!r} is not supported")

    def on_headers_complete(self) -> None:
        assert self._parser is not None  # noqa: S101 - the parser calls this method
        status = self._parser.get_status_code()
        if status >= 200:  # the final response follows a 1xx response
            self.status = status
            self.keep_alive = self._parser.should_keep_alive()

    def on_body(self, raw: bytes) -> None:
        self._on_body(self.status, raw)

    def on_message_complete(self) -> None:
        self.done = self.status > 0


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
        # A cast, not a check: transports of uvloop do not derive from asyncio's.
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
            self.abort()  # unexpected bytes: this connection must not be used again
            return
        try:
            if self._parser.feed(self._buffer[:nbytes]):
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
        """Close the connection at once."""
        self.open = False
        self._transport.abort()

    async def exchange(self, request: bytes, parser: ResponseParser) -> None:
        """Send a request and parse its response to the end."""
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
            # Also if the response is complete but its task was cancelled: no other code closes
            # this connection.
            if not reusable:
                self.abort()


class ConnectionPool:
    """Connections to one server, opened on demand. Bound to one event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tls = ssl.create_default_context() if address.secure else None
        # All connections share one buffer: one callback of the event loop fills and empties it.
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    async def exchange(self, request: bytes, on_body: Callable[[int, bytes], None]) -> int:
        """Send a request, pass on the response body, and return the status.

        Args:
            request: Encoded by `Address.request`.
            on_body: Called with the status and each piece of the body. Its exceptions are raised
                here.

        Raises:
            OSError: The connection failed.
        """
        while (connection := self._reusable()) is not None:
            parser = ResponseParser(on_body)
            try:
                return await self._on(connection, request, parser)
            except ConnectionError:
                # A server may close an idle connection at any time.
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
        """Close all connections."""
        for connection in (*self._idle, *self._busy):
            with contextlib.suppress(AttributeError):  # a connection that was never established
                connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # asyncio closes the sockets in its next iteration
