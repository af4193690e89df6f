"""Job: the scheduler's requests for one HTTP request, which may ask for several answers."""

from __future__ import annotations

import asyncio
import uuid
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from runners.simulated_server.api.errors import native_error
from runners.simulated_server.api.replies import ReplyWriter, ending
from runners.simulated_server.api.state import ConnectionCutError
from runners.simulated_server.engine.acceptance import fixed
from runners.simulated_server.engine.request import make_request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import Receive, Scope, Send

    from runners.simulated_server.api.sampling import Sampling
    from runners.simulated_server.api.state import SimulatedServer
    from runners.simulated_server.engine.request import Request

ARRIVED: ContextVar[float | None] = ContextVar("ARRIVED", default=None)
"""Event loop time at which the bytes of the current HTTP request arrived."""
CONNECTION: ContextVar[asyncio.Transport | None] = ContextVar("CONNECTION", default=None)
"""Connection of the current HTTP request."""

OPEN_ARRIVAL = (b"x-tuner-arrival", b"open")
"""Header of a request of an open loop: the client does not wait for an answer to send it."""

_MAX_ANSWERS = 4096
"""Limit of answers per HTTP request, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A prompt with its sampling parameters and request id."""

    ids: list[int]
    sampling: Sampling
    rid: str | None = None


class Job:
    """Requests of one HTTP request, with a writer for each.

    Attributes:
        http_version: HTTP version of the request.
    """

    def __init__(self, server: SimulatedServer, wanted: list[Wanted], scope: Scope) -> None:
        """Check and prepare the requests, without submitting them.

        Raises:
            ApiError: The request is refused, in the format of `/generate`.
        """
        self._server = server
        self.hooks = server.hooks
        self.http_version: str = scope["http_version"]
        self.requests: list[Request] = []
        self.writers: list[ReplyWriter] = []
        arrived = ARRIVED.get() or asyncio.get_running_loop().time()
        opened = OPEN_ARRIVAL in scope["headers"]
        if sum(max(1, one.sampling.n) for one in wanted) > _MAX_ANSWERS:
            raise native_error(
                f"One request may ask the simulated server for at most {_MAX_ANSWERS} answers."
            )
        for one in wanted:
            check_length(server, len(one.ids), one.sampling.max_new_tokens)
            if one.rid is not None and one.rid in server.live:
                raise native_error(f"Duplicate request ID detected: {one.rid}")
        for one in wanted:
            for i in range(max(1, one.sampling.n)):
                rid = one.rid if one.rid is not None and i == 0 else uuid.uuid4().hex
                self._add(one, rid, arrived, opened=opened)

    def _add(self, one: Wanted, rid: str, arrived: float, *, opened: bool) -> None:
        server = self._server
        room = max(0, server.context_length - len(one.ids) - 1)
        asked = one.sampling.max_new_tokens
        request = make_request(
            rid,
            one.ids,
            room if asked is None else min(asked, room),
            arrived=arrived,
            stops=not one.sampling.ignore_eos,
            open_arrival=opened,
        )
        request.noise = server.engine.noise.prompt(request.prompt)
        answer = fixed(request.answer) if server.fixed_tokens else request.answer
        end = ending(server.hooks.answer(answer), one.sampling, request.limit)
        request.answer, request.stops = end.answer, end.stops
        self.requests.append(request)
        self.writers.append(
            ReplyWriter(
                request,
                end,
                server.flags.num_draft_tokens,
                timed=server.enable_metrics,
                hooks=server.hooks,
            )
        )

    async def run(
        self, receive: Receive, answer: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        """Submit the requests and run `answer`; abort the requests if the client disconnects."""
        live = self._server.live
        for request in self.requests:
            live[request.rid] = request
            self._server.engine.submit(request)
        served = asyncio.create_task(answer())
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((served, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not served.done():
                served.cancel()
            for request in self.requests:
                request.on_progress = None
                if request.finish is None:
                    self._server.engine.abort(request.rid)
                live.pop(request.rid, None)
                if self._server.enable_metrics:
                    self._server.observations.finished(request)
        if served.done() and not served.cancelled():
            try:
                served.result()
            except ConnectionCutError:
                _cut_connection()

    async def finished(self) -> list[ReplyWriter]:
        """Wait until all requests have ended; return their writers."""
        for request in self.requests:
            while request.finish is None:
                request.progress.clear()
                await request.progress.wait()
        return self.writers


def _cut_connection() -> None:
    """Reset the connection of the current HTTP request."""
    transport = CONNECTION.get()
    if transport is not None:
        transport.abort()


def check_length(server: SimulatedServer, prompt_tokens: int, max_new_tokens: int | None) -> None:
    """Check the context length, as SGLang's `_validate_one_request` does.

    Raises:
        ApiError: Prompt and answer exceed the context length.
    """
    limit = server.context_length
    count = prompt_tokens + server.reserved_tokens
    if prompt_tokens == 0:
        raise native_error(
            "The prompt is empty, and the simulated model's tokenizer adds no special token."
        )
    if count >= limit:
        raise native_error(
            f"The input ({count} tokens) is longer than the model's context length "
            f"({limit} tokens)."
        )
    if max_new_tokens is not None and count + max_new_tokens > limit:
        raise native_error(
            f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
            f"You requested a total of {count + max_new_tokens} tokens: {count} tokens from the "
            f"input messages and {max_new_tokens} tokens for the completion. Please reduce the "
            "number of tokens in the input messages or the completion to fit within the limit."
        )


async def read_body(receive: Receive) -> bytes:
    """Read the whole body."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def send_json(send: Send, body: object, status: int = 200) -> None:
    """Send a JSON body."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
