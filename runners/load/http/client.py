"""HTTP client of the load generator: streamed requests, cache flush and abort."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import orjson

from results.records import Failure
from runners.base import RunnerError
from runners.load.http.connection import Address, ConnectionPool
from runners.load.http.endpoint import MalformedStreamError
from runners.load.http.generate import GenerateEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.records import Fault
    from runners.load.http.endpoint import Endpoint, StreamReader
    from runners.load.http.in_flight import InFlightRequest

clock = time.perf_counter

_GONE = frozenset({502, 503, 504})
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_FLUSH_PAUSE_S = 0.05
_ABORT_TIMEOUT_S = 2.0


def load_error(kind: str, fault: Fault, message: str) -> RunnerError:
    """Return the error for a failure under load."""
    return RunnerError(Failure(kind=kind, phase="load", fault=fault, message=message))


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client.

    Attributes:
        base_url: `http://host:port`.
        connections: Intended number of requests in flight; only used in error messages.
        request_timeout_s: Limit for one whole request in real seconds.
        api_key: Bearer token.
        endpoint: API of the server.
        headers: Further headers as pairs.
    """

    base_url: str
    connections: int
    request_timeout_s: float
    api_key: str | None = None
    endpoint: Endpoint = field(default_factory=GenerateEndpoint)
    headers: tuple[tuple[str, str], ...] = ()


class LoadClient:
    """Client of one server; an async context manager, bound to one event loop.

    Every call raises `RunnerError` if the server is gone. An error response or a time-out is not an
    exception: the client records it in the `InFlightRequest`.
    """

    def __init__(
        self, settings: ClientSettings, on_chunk: Callable[[float], None] | None = None
    ) -> None:
        """Prepare the client; the first request opens the first connection.

        Args:
            settings: Settings of the client.
            on_chunk: Called with the arrival time of each chunk that carries tokens.

        Raises:
            RunnerError: The URL is not an HTTP address.
        """
        self._base_url = settings.base_url.rstrip("/")
        self._connections = settings.connections
        self._request_timeout_s = settings.request_timeout_s
        self._endpoint = settings.endpoint
        self._on_chunk = on_chunk or (lambda _now: None)
        try:
            self._address = Address.of(self._base_url)
        except ValueError as error:
            raise load_error("bad_url", "client", str(error)) from error
        self._pool = ConnectionPool(self._address)
        self._headers = {"Content-Type": "application/json", **dict(settings.headers)}
        if settings.api_key:
            self._headers["Authorization"] = f"Bearer {settings.api_key}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._pool.close()

    def prepare(self, flight: InFlightRequest) -> bytes:
        """Encode the HTTP request before the window, so that the window only sends bytes."""
        request = self._address.request(self._endpoint.path, self._headers, flight.body)
        flight.request = request
        return request

    async def generate(self, flight: InFlightRequest) -> None:
        """Send one request and read its stream to the end.

        Raises:
            RunnerError: The server is gone, or this machine allows no more connections.
        """
        reader = self._endpoint.reader()
        flight.sent = clock()
        limit = asyncio.timeout(self._request_timeout_s)
        try:
            async with limit:
                await self._follow(flight, reader)
        except OSError as error:
            # The network stack raises TimeoutError too, when it gives up a connection.
            if not limit.expired():
                raise self._lost(flight, error) from error
            # The window continues and becomes invalid; the launch has not failed.
            flight.timed_out = True
            flight.error = (
                f"timed out: {flight.tokens} {'tokens' if reader.counts_tokens else 'chunks'} "
                f"after the client's limit of {self._request_timeout_s:g} s; raise the limit if "
                "the server is that slow"
            )
        except MalformedStreamError as error:
            flight.error = str(error)
        if not reader.counts_tokens:
            answer = flight.answer
            flight.spread((answer and answer.completion_tokens) or 0)

    async def _follow(self, flight: InFlightRequest, reader: StreamReader) -> None:
        refusal: list[bytes] = []
        feed, times, counts, on_chunk = (
            reader.feed,
            flight.chunk_times,
            flight.chunk_tokens,
            self._on_chunk,
        )
        so_far = 0

        def on_body(status: int, raw: bytes) -> None:
            # Hot path: this function runs for each chunk of each stream.
            nonlocal so_far
            if status != 200:
                refusal.append(raw)
                return
            tokens = feed(raw)
            if tokens is None or tokens <= so_far:
                return
            so_far = tokens
            now = clock()
            times.append(now)
            counts.append(tokens)
            on_chunk(now)

        request = flight.request or self.prepare(flight)
        status = await self._pool.exchange(request, on_body)
        if status != 200:
            text = b"".join(refusal).decode("utf-8", "replace")
            if status in _GONE:
                message = f"{self._base_url} returned HTTP {status}: {text[:300]}"
                raise load_error("server_gone", "configuration", message)
            flight.error = f"HTTP {status}: {text[:300]}"
            return
        flight.answer = reader.answer()
        flight.error = flight.answer.error

    def _lost(self, flight: InFlightRequest, error: OSError) -> RunnerError:
        if error.errno in _OUT_OF_FILES:
            return load_error(
                "too_many_files",
                "client",
                f"the limit of open files is too low for {self._connections} connections: raise "
                "the limit (`ulimit -n 65536`) or lower the load",
            )
        if error.errno == errno.EADDRNOTAVAIL:
            return load_error(
                "no_free_port",
                "client",
                f"no free local port for another connection to {self._base_url}: lower the load, "
                "or widen net.ipv4.ip_local_port_range",
            )
        return load_error(
            "server_gone",
            "configuration",
            f"the connection to {self._base_url} was lost after {flight.tokens} tokens of "
            f"request {flight.prompt}: {type(error).__name__} {error}",
        )

    async def flush_cache(self, *, timeout_s: float) -> None:
        """Empty the prefix cache, which also proves that the server is idle.

        SGLang refuses while a request runs or waits; the client then retries for `timeout_s`. The
        call does nothing if the server has no `/flush_cache` (`Endpoint.has_controls`).

        Raises:
            RunnerError: The server did not become idle in time, or is gone.
        """
        if not self._endpoint.has_controls:
            return
        where = f"{self._base_url}/flush_cache"
        deadline = clock() + timeout_s
        while True:
            try:
                async with asyncio.timeout(max(timeout_s, 1.0)):
                    status, text = await self._control("/flush_cache")
            except TimeoutError as error:
                message = f"{where} did not answer within {timeout_s:g} s"
                raise load_error("server_hung", "configuration", message) from error
            except OSError as error:
                message = f"no answer from {where}: {error}"
                raise load_error("server_gone", "configuration", message) from error
            if 200 <= status < 300:
                return
            response = f"{where} returned HTTP {status} {text[:200].strip()!r}"
            if status in {401, 403, 404, 405}:
                message = f"{response}: check the URL and the API key"
                raise load_error("flush_refused", "client", message)
            if status in _GONE:
                raise load_error("server_gone", "configuration", response)
            if clock() >= deadline:
                message = (
                    f"the server did not become idle within {timeout_s:g} s: {response}; a request "
                    "is stuck, or another client uses the server"
                )
                raise load_error("not_idle", "configuration", message)
            await asyncio.sleep(_FLUSH_PAUSE_S)

    async def abort_all(self) -> None:
        """Ask the server to abort all requests; failures are ignored.

        A server without `/abort_request` (`Endpoint.has_controls`) only sees closed connections.
        """
        if not self._endpoint.has_controls:
            return
        body = orjson.dumps({"rid": "", "abort_all": True})
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_ABORT_TIMEOUT_S):
                await self._control("/abort_request", body)

    async def _control(self, path: str, body: bytes = b"") -> tuple[int, str]:
        """Send a request without a stream; return status and text of the response."""
        pieces: list[bytes] = []
        request = self._address.request(path, self._headers, body)
        status = await self._pool.exchange(request, lambda _status, raw: pieces.append(raw))
        return status, b"".join(pieces).decode("utf-8", "replace")
