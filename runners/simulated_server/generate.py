"""`POST /generate`, streaming and not."""

from __future__ import annotations

import asyncio
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runners.simulated_server import tokens
from runners.simulated_server.replies import ReplyWriter
from runners.simulated_server.request import Request, make_request
from runners.simulated_server.wall_clock import wall_time

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from runners.simulated_server.state import SimulatedServer

ARRIVED: ContextVar[float | None] = ContextVar("ARRIVED", default=None)
"""Event loop time at which the bytes of the current request arrived."""

_DEFAULT_MAX_NEW_TOKENS = 128


class _SamplingParams(BaseModel):
    model_config = ConfigDict(extra="allow")

    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    ignore_eos: bool = False
    temperature: float = 1.0
    n: Annotated[int, Field(ge=1, le=1)] = 1


class _Body(BaseModel):
    model_config = ConfigDict(extra="allow")

    text: str | list[str] | None = None
    input_ids: list[int] | list[list[int]] | None = None
    sampling_params: _SamplingParams | list[_SamplingParams] | None = None
    stream: bool = False
    rid: str | list[str] | None = None


class BadRequestError(Exception):
    """The request is refused with status 400; `body` says why, in SGLang's words."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(str(body))
        self.body = body

    @classmethod
    def of(cls, message: str, kind: str = "BadRequestError") -> BadRequestError:
        """A refusal in SGLang's usual shape."""
        body = {"object": "error", "message": message, "type": kind, "param": None, "code": 400}
        return cls(body)


class GenerateEndpoint:
    """The endpoint, an ASGI application. Raw, because a chunk's cost counts at high speed."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Serves one HTTP request."""
        arrived = ARRIVED.get() or asyncio.get_running_loop().time()
        raw = await _read_body(receive)
        try:
            body = _parse(raw)
            requests = self._requests(body, arrived)
        except BadRequestError as error:
            await _send_json(send, error.body, 400)
            return
        for request in requests:
            self._server.engine.submit(request)
        served = asyncio.create_task(self._reply(requests, send, body))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((served, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not served.done():
                served.cancel()
                for request in requests:
                    self._server.engine.abort(request.rid)
        if served.done() and not served.cancelled():
            served.result()

    async def _reply(self, requests: list[Request], send: Send, body: _Body) -> None:
        width = self._server.flags.num_draft_tokens
        if body.stream:
            await _stream(requests[0], ReplyWriter(requests[0], width), send)
            return
        replies = []
        for request in requests:
            while request.finish is None:
                request.progress.clear()
                await request.progress.wait()
            replies.append(ReplyWriter(request, width).whole())
        batch = isinstance(body.text, list) or isinstance((body.input_ids or [0])[0], list)
        await _send_json(send, replies if batch else replies[0], 200)

    def _requests(self, body: _Body, arrived: float) -> list[Request]:
        prompts = _prompts(body)
        sampling = body.sampling_params or _SamplingParams()
        if body.stream and len(prompts) > 1:
            raise BadRequestError.of("the simulated server streams one prompt at a time")
        made = []
        for i, ids in enumerate(prompts):
            params = sampling[i] if isinstance(sampling, list) else sampling
            if params.temperature < 0:
                number = f"{params.temperature:g}"
                message = f"temperature must be a non-negative finite number, got {number}."
                raise BadRequestError({"error": {"message": message}})
            if len(ids) >= self._server.context_length:
                raise BadRequestError.of(
                    f"The input ({len(ids)} tokens) is longer than the model's context length "
                    f"({self._server.context_length} tokens)."
                )
            room = self._server.context_length - len(ids)
            prompt = tokens.fingerprint(ids)
            request = make_request(
                _rid(body.rid, i),
                ids,
                min(params.max_new_tokens or _DEFAULT_MAX_NEW_TOKENS, room),
                stops=not params.ignore_eos,
                streaming=body.stream,
                arrived=arrived,
                received_at=wall_time(arrived),
                noise=self._server.engine.noise.prompt(prompt),
                prompt=prompt,
            )
            made.append(request)
        return made


def _parse(raw: bytes) -> _Body:
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        detail = {
            "type": "json_invalid",
            "loc": ("body", error.pos),
            "msg": "JSON decode error",
            "input": {},
            "ctx": {"error": error.msg},
        }
        raise BadRequestError.of(f"1 validation error:\n  {detail}", "Bad Request") from error
    try:
        return _Body.model_validate(data)
    except ValidationError as error:
        raise BadRequestError.of(str(error), "Bad Request") from error


def _prompts(body: _Body) -> list[list[int]]:
    if body.text is not None:
        texts = [body.text] if isinstance(body.text, str) else body.text
        found = [tokens.tokenize(text) for text in texts]
    else:
        ids: list[Any] = body.input_ids or []
        found = ids if ids and isinstance(ids[0], list) else [ids]
    if not found or not all(found):
        raise BadRequestError.of("Either text, input_ids or input_embeds should be provided.")
    return found


def _rid(given: str | list[str] | None, index: int) -> str:
    if isinstance(given, str) and index == 0:
        return given
    if isinstance(given, list) and index < len(given):
        return given[index]
    return uuid.uuid4().hex


async def _stream(request: Request, writer: ReplyWriter, send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    finished = False
    while not finished:
        # A reader that lags gets the latest state, as from SGLang: chunks are cumulative.
        await request.progress.wait()
        request.progress.clear()
        finished = request.finish is not None
        data = b"data: " + orjson.dumps(writer.chunk()) + b"\n\n"
        if finished:
            data += b"data: [DONE]\n\n"
        await send({"type": "http.response.body", "body": data, "more_body": not finished})


async def _read_body(receive: Receive) -> bytes:
    parts = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_json(send: Send, body: object, status: int) -> None:
    data = orjson.dumps(body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
