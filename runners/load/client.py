"""The HTTP side of the load generator: one server, streamed requests, flush and abort."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Self

import aiohttp
import httpx
import orjson
from httpx_aiohttp import AiohttpTransport

from results.records import Failure
from runners.base import RunnerError
from runners.load.stream import GenerateEndpoint, MalformedStreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from results.records import Fault
    from runners.load.endpoint import Endpoint
    from runners.load.flight import Flight

clock = time.perf_counter

_GONE = frozenset({502, 503, 504})
_TRANSPORT_ERRORS = (httpx.TransportError, aiohttp.ClientError, OSError)
# Shorter than the server's own (5 s, 0.5.23): a connection that the server is about to close is
# not used again, where it would look like a crash.
_KEEPALIVE_S = 2.0
_FLUSH_PAUSE_S = 0.05
_ABORT_TIMEOUT_S = 2.0


def load_error(kind: str, fault: Fault, message: str) -> RunnerError:
    """A failure under load."""
    return RunnerError(Failure(kind=kind, phase="load", fault=fault, message=message))


class LoadClient:
    """Speaks to one server; an async context manager, bound to one event loop.

    Raises `RunnerError` from every call where the server is gone. A request that the server
    answers with an error is not an exception: it is noted in its `Flight`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        connections: int,
        request_timeout_s: float,
        api_key: str | None = None,
        endpoint: Endpoint | None = None,
        on_chunk: Callable[[float], None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Prepares the client; nothing is connected before the first request.

        Args:
            base_url: `http://host:port`.
            connections: Requests that may be in flight at once.
            request_timeout_s: Real seconds that one request may take in all.
            api_key: Sent as bearer token where given.
            endpoint: What the server speaks; SGLang's `/generate` if not given.
            on_chunk: Called with the time of every chunk that carries tokens.
            headers: Sent with every request besides.
        """
        self._base_url = base_url.rstrip("/")
        self._request_timeout_s = request_timeout_s
        self._endpoint = endpoint or GenerateEndpoint()
        self._on_chunk = on_chunk or (lambda _now: None)
        transport = AiohttpTransport(
            verify=self._base_url.startswith("https:"),
            limits=httpx.Limits(
                # httpx's default of 100 would cap the concurrency without a word.
                max_connections=connections + 2,
                max_keepalive_connections=connections + 2,
                keepalive_expiry=_KEEPALIVE_S,
            ),
        )
        every_request = {"Content-Type": "application/json", **(headers or {})}
        if api_key:
            every_request["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.AsyncClient(
            transport=transport,
            headers=every_request,
            timeout=None,  # noqa: S113 - each call stands under an asyncio.timeout of its own
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    def prepare(self, flight: Flight) -> httpx.Request:
        """Builds the HTTP request ahead, so that inside a window it has only to be sent."""
        request = self._http.build_request(
            "POST", f"{self._base_url}{self._endpoint.path}", content=flight.body
        )
        flight.request = request
        return request

    async def generate(self, flight: Flight) -> None:
        """Sends one request and follows its stream to the end.

        Raises:
            RunnerError: The server is gone.
        """
        flight.sent = clock()
        try:
            async with asyncio.timeout(self._request_timeout_s):
                await self._follow(flight)
        except TimeoutError:
            # A failed sample, no failure of the launch: the window goes on and is not believed.
            flight.timed_out = True
            flight.error = (
                f"timed out: {flight.tokens} tokens after the client's limit of "
                f"{self._request_timeout_s:g} s; raise it if the server is that slow"
            )
        except _TRANSPORT_ERRORS as error:
            message = (
                f"the connection to {self._base_url} was lost after {flight.tokens} tokens of "
                f"request {flight.prompt}: {type(error).__name__} {error}"
            )
            raise load_error("server_gone", "configuration", message) from error
        except MalformedStreamError as error:
            flight.error = str(error)

    async def _follow(self, flight: Flight) -> None:
        reader = self._endpoint.reader()
        request = flight.request or self.prepare(flight)
        response = await self._http.send(request, stream=True)
        async with contextlib.aclosing(response):
            if response.status_code != httpx.codes.OK:
                text = (await response.aread()).decode("utf-8", "replace")
                if response.status_code in _GONE:
                    message = f"{self._base_url} answers HTTP {response.status_code}: {text[:300]}"
                    raise load_error("server_gone", "configuration", message)
                flight.error = f"HTTP {response.status_code}: {text[:300]}"
                return
            async for raw in response.aiter_raw():
                tokens = reader.feed(raw)
                if tokens is None or tokens <= flight.tokens:
                    continue
                now = clock()
                flight.chunk_times.append(now)
                flight.chunk_tokens.append(tokens)
                self._on_chunk(now)
        flight.answer = reader.answer()
        flight.error = flight.answer.error

    async def flush_cache(self, *, timeout_s: float) -> None:
        """Empties the prefix cache, which proves that the server is idle.

        SGLang refuses while a request runs or waits; that is tried again for `timeout_s`.

        Raises:
            RunnerError: It did not succeed in time, or the server is gone.
        """
        give_up = clock() + timeout_s
        while True:
            try:
                async with asyncio.timeout(max(timeout_s, 1.0)):
                    response = await self._http.post(f"{self._base_url}/flush_cache")
            except TimeoutError as error:
                message = f"{self._base_url}/flush_cache did not answer within {timeout_s:g} s"
                raise load_error("server_hung", "configuration", message) from error
            except _TRANSPORT_ERRORS as error:
                message = f"no answer from {self._base_url}/flush_cache: {error}"
                raise load_error("server_gone", "configuration", message) from error
            if response.is_success:
                return
            answer = f"HTTP {response.status_code} {response.text[:200].strip()!r}"
            if response.status_code in {401, 403, 404, 405}:
                message = (
                    f"{self._base_url}/flush_cache answers {answer}: check the URL and API key"
                )
                raise load_error("flush_refused", "client", message)
            if response.status_code in _GONE:
                message = f"{self._base_url}/flush_cache answers {answer}"
                raise load_error("server_gone", "configuration", message)
            if clock() >= give_up:
                message = (
                    f"the server did not come to rest within {timeout_s:g} s: /flush_cache answers "
                    f"{answer}; a request is stuck, or another client uses the server"
                )
                raise load_error("not_idle", "configuration", message)
            await asyncio.sleep(_FLUSH_PAUSE_S)

    async def abort_all(self) -> None:
        """Asks the server to drop every request; best effort, quick and silent."""
        body = orjson.dumps({"rid": "", "abort_all": True})
        with contextlib.suppress(TimeoutError, *_TRANSPORT_ERRORS):
            async with asyncio.timeout(_ABORT_TIMEOUT_S):
                await self._http.post(f"{self._base_url}/abort_request", content=body)
