"""`POST /generate`, streaming and not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from runners.simulated_server.api import sampling
from runners.simulated_server.api.errors import (
    ApiError,
    bad_body,
    bad_json,
    missing_body,
    native_error,
    validation_error,
)
from runners.simulated_server.api.jobs import Job, Wanted, read_body, send_json
from runners.simulated_server.api.streaming import DONE, EventWriter, stream, stream_of_one
from runners.simulated_server.engine import tokens

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from runners.simulated_server.api.replies import ReplyWriter
    from runners.simulated_server.api.state import SimulatedServer


def _list_or_null(value: Any) -> Any:  # noqa: ANN401 - whatever the client sent
    if value is not None and not isinstance(value, list):
        raise ValueError(f"must be list or null; got {type(value).__name__}")
    return value


class _Body(BaseModel):
    # Fields without an effect in the simulation, and unknown fields, are ignored.
    model_config = ConfigDict(extra="ignore")

    text: str | list[str] | None = None
    input_ids: Annotated[list[int] | list[list[int]] | None, BeforeValidator(_list_or_null)] = None
    sampling_params: dict[str, Any] | list[dict[str, Any]] | None = None
    stream: bool = False
    rid: str | list[str] | None = None
    return_logprob: bool | list[bool] | None = False


class GenerateEvents(EventWriter):
    """Events of `/generate`.

    Args:
        batch: Whether the request is a batch; each event then has the index of its answer.
        incremental: `--incremental-streaming-output`: an event holds only new tokens.
    """

    def __init__(self, writers: list[ReplyWriter], *, batch: bool, incremental: bool) -> None:
        self._writers = writers
        self._suffixes = [b',"index":%d' % i if batch else b"" for i in range(len(writers))]
        self._incremental = incremental

    def events(self, index: int, sent: int) -> bytes:
        writer = self._writers[index]
        before = sent if self._incremental else None
        if writer.request.finish is None:
            return writer.event(before, self._suffixes[index])
        return writer.last_event(before, self._suffixes[index])

    def end(self) -> bytes:
        return DONE


class GenerateEndpoint:
    """`/generate` as a plain ASGI application, which costs less per chunk."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._server
        raw = await read_body(receive)
        try:
            server.hooks.admit()
            body = _parse(raw, scope)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        try:
            wanted, batch = _wanted(body)
            job = Job(server, wanted, scope)
        except ApiError as error:
            if (
                body.stream
                and isinstance(error.body, dict)
                and isinstance(error.body["error"], dict)
            ):
                await stream_of_one(_streamed(error), send)
            else:
                await error.response()(scope, receive, send)
            return
        batch = batch or len(job.requests) > 1

        async def answer() -> None:
            if body.stream:
                events = GenerateEvents(
                    job.writers, batch=batch, incremental=server.incremental_streaming
                )
                interval = wanted[0].sampling.stream_interval or server.stream_interval
                await stream(job, events, send, interval)
                return
            replies = [writer.whole() for writer in await job.finished()]
            await send_json(send, replies if batch else replies[0])

        for request in job.requests:
            request.streaming = body.stream
        await job.run(receive, answer)


def _streamed(error: ApiError) -> bytes:
    """Return an error as the event of a stream; SGLang answers 200 then."""
    message = error.body["error"]["message"] if isinstance(error.body, dict) else error.body
    return orjson.dumps(
        {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "code": error.status,
                "retryable": False,
            }
        }
    )


def _parse(raw: bytes, scope: Scope) -> _Body:
    if not raw:
        raise missing_body(scope)
    kind = dict(scope["headers"]).get(b"content-type", b"application/json")
    if b"json" not in kind:
        raise validation_error(scope, [_no_object(raw)])
    try:
        data = orjson.loads(raw)
        if not isinstance(data, dict):
            raise validation_error(scope, [_no_object(data)])
        body = _Body.model_validate(data)
    except orjson.JSONDecodeError as error:
        raise bad_json(scope, error) from error
    except ValidationError as error:
        raise bad_body(scope, error) from error
    for params in _each(body.sampling_params):
        sampling.check_contract(params)
    return body


def _no_object(given: object) -> dict[str, Any]:
    return {
        "type": "dataclass_type",
        "loc": ("body",),
        "msg": "Input should be a dictionary or an instance of GenerateReqInput",
        "input": given,
        "ctx": {"class_name": "GenerateReqInput"},
    }


def _each(params: dict[str, Any] | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    if params is None:
        return []
    return params if isinstance(params, list) else [params]


def _wanted(body: _Body) -> tuple[list[Wanted], bool]:
    """Return the requested answers, and whether the response is a list."""
    if body.return_logprob not in (None, False):
        raise native_error("return_logprob is not supported: the simulated server has no logits")
    if body.text is not None:
        batch = isinstance(body.text, list)
        texts = body.text if isinstance(body.text, list) else [body.text]
        prompts = [tokens.tokenize(text) for text in texts]
        if not prompts:
            raise native_error("text cannot be empty.")
    elif body.input_ids is not None:
        ids: list[Any] = body.input_ids
        if not ids:
            raise native_error("input_ids cannot be empty.")
        batch = isinstance(ids[0], list)
        prompts = ids if batch else [ids]
    else:
        raise native_error("Either text, input_ids or input_embeds should be provided.")
    params = _each(body.sampling_params) or [{}]
    if len(params) == 1:
        params *= len(prompts)
    if len(params) != len(prompts):
        raise native_error("The length of sampling_params should be equal to the batch size.")
    rids = body.rid if isinstance(body.rid, list) else [body.rid]
    if body.rid is not None and len(rids) != len(prompts):
        raise native_error("The rids length mismatch with the batch_size.")
    wanted = []
    for i, ids in enumerate(prompts):
        checked = sampling.check(params[i])
        wanted.append(Wanted(ids, checked, rids[i] if body.rid is not None else None))
    return wanted, batch
