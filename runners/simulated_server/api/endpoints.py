"""Endpoints for health, information and control."""

from __future__ import annotations

import asyncio
import gzip
import time
import uuid
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from runners.simulated_server.api.errors import (
    bad_json,
    json_response,
    missing_body,
    validation_error,
)
from runners.simulated_server.api.metrics import render
from runners.simulated_server.engine.clock import wall_time
from runners.simulated_server.engine.request import make_request

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from runners.simulated_server.api.metrics import HttpCounts
    from runners.simulated_server.api.state import SimulatedServer

_HEALTH_TIMEOUT_S = 20
_PAGE = "text/plain; version=0.0.4; charset=utf-8"
_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or "
    "waiting requests, the operation will not be performed.)\n"
)
_POLL_S = 0.005
_STATE_REQUEST = "function-after[build_struct(), SetInternalStateReq]"


class Health:
    """`/health` and `/ready`."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def health(self, _: HttpRequest) -> Response:
        """Answer 200 once the engine makes progress; an idle engine generates one token."""
        server = self._server
        if not server.ready:
            return Response(status_code=503)
        if (status := server.hooks.health()) is not None:
            return Response(status_code=status)
        engine = server.engine
        began = wall_time()
        if not engine.busy:
            self._submit()
        step = 1.0 / server.simulation.time_scale
        for _second in range(_HEALTH_TIMEOUT_S):
            await asyncio.sleep(step)
            if engine.last_progress > began:
                return Response(status_code=200)
        server.log.main(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            f"{_HEALTH_TIMEOUT_S} seconds."
        )
        return Response(status_code=503)

    async def ready(self, _: HttpRequest) -> Response:
        """Answer 200 after the start-up, without a test of the engine."""
        return Response(status_code=200 if self._server.ready else 503)

    def _submit(self) -> None:
        now = asyncio.get_running_loop().time()
        request = make_request(f"HEALTH_CHECK_{uuid.uuid4().hex}", [0], 1, arrived=now)
        request.counted = False
        self._server.engine.submit(request)


class Information:
    """Server, model and metrics."""

    def __init__(self, server: SimulatedServer, counts: HttpCounts) -> None:
        self._server = server
        self._counts = counts

    async def root(self, _: HttpRequest) -> Response:
        return json_response("SGLang is running")

    async def server_info(self, _: HttpRequest) -> Response:
        return json_response(self._server.server_info())

    async def get_server_info(self, request: HttpRequest) -> Response:
        """Answer `/server_info` under its deprecated name."""
        self._warn_deprecated("server_info")
        return await self.server_info(request)

    async def model_info(self, _: HttpRequest) -> Response:
        return json_response(self._server.model_info())

    async def get_model_info(self, request: HttpRequest) -> Response:
        """Answer `/model_info` under its deprecated name."""
        self._warn_deprecated("model_info")
        return await self.model_info(request)

    async def models(self, _: HttpRequest) -> Response:
        return json_response({"object": "list", "data": [self._card()]})

    async def model(self, request: HttpRequest) -> Response:
        name = request.path_params["model"]
        if name == self._server.served_model_name:
            return json_response(self._card())
        error = {
            "message": f"The model '{name}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return json_response({"error": error}, 404)

    async def metrics(self, request: HttpRequest) -> Response:
        """Answer the Prometheus page, compressed if the client accepts gzip."""
        page = render(self._server, self._counts).encode()
        headers = {"vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            page = gzip.compress(page, 1)
            headers["content-encoding"] = "gzip"
        return Response(page, media_type=_PAGE, headers=headers)

    def _card(self) -> dict[str, Any]:
        name = self._server.served_model_name
        return {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self._server.context_length,
        }

    def _warn_deprecated(self, name: str) -> None:
        self._server.log.main(
            f"Endpoint '/get_{name}' is deprecated and will be removed in a future version. "
            f"Please use '/{name}' instead."
        )


class Control:
    """Flush, abort and switch."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def flush_cache(self, request: HttpRequest) -> Response:
        """Empty the prefix cache; wait up to `timeout` seconds for an idle engine."""
        timeout = _timeout(request)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not self._server.engine.flush():
            if loop.time() >= deadline:
                failed = "Timed out waiting for idle state." if timeout else "Flush cache failed.\n"
                return Response(failed, 400)
            await asyncio.sleep(_POLL_S)
        self._server.log.scheduler("Cache flushed successfully!")
        return Response(_FLUSHED)

    async def abort_request(self, request: HttpRequest) -> Response:
        """End one request by its id, or all requests."""
        body = await _object(request)
        rid, everything = body.get("rid", ""), bool(body.get("abort_all"))
        if not isinstance(rid, str):
            fault = {
                "type": "string_type",
                "loc": ("body", "function-after[build_struct(), AbortReq]", "rid"),
                "msg": "Input should be a valid string",
                "input": rid,
            }
            raise validation_error(request.scope, [_no_instance("AbortReq", body), fault])
        self._server.abort(rid, everything=everything)
        return Response()

    async def set_internal_state(self, request: HttpRequest) -> Response:
        """Change values of the running server; answer one boolean per data-parallel rank."""
        body = await _object(request)
        arguments = body.get("server_args")
        no_instance = _no_instance("SetInternalStateReq", body)
        if not isinstance(arguments, dict):
            missing = {
                "type": "missing",
                "loc": ("body", _STATE_REQUEST, "server_args"),
                "msg": "Field required",
                "input": body,
            }
            raise validation_error(request.scope, [no_instance, missing])
        numbers = {name: _number(value) for name, value in arguments.items()}
        wrong = [name for name, value in numbers.items() if value is None]
        if wrong:
            faults = [no_instance]
            for kind, words in (("int", "an integer"), ("float", "a number")):
                faults += [_unparsed(name, arguments[name], kind, words) for name in wrong]
            raise validation_error(request.scope, faults)
        good = {name: value for name, value in numbers.items() if value is not None}
        return json_response([self._server.set_internal_state(good)])


async def _object(request: HttpRequest) -> dict[str, Any]:
    raw = await request.body()
    if not raw:
        raise missing_body(request.scope)
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise bad_json(request.scope, error) from error
    if not isinstance(body, dict):
        fault = {
            "type": "dict_type",
            "loc": ("body",),
            "msg": "Input should be a valid dictionary",
            "input": body,
        }
        raise validation_error(request.scope, [fault])
    return body


def _timeout(request: HttpRequest) -> float:
    given = request.query_params.get("timeout", "0")
    fault: dict[str, Any] = {
        "type": "float_parsing",
        "loc": ("query", "timeout"),
        "msg": "Input should be a valid number, unable to parse string as a number",
        "input": given,
    }
    try:
        seconds = float(given)
    except ValueError:
        raise validation_error(request.scope, [fault]) from None
    if seconds < 0.0:
        message = "Input should be greater than or equal to 0"
        fault |= {"type": "greater_than_equal", "msg": message, "ctx": {"ge": 0.0}}
        raise validation_error(request.scope, [fault])
    return seconds


def _number(value: object) -> int | float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _no_instance(kind: str, body: object) -> dict[str, Any]:
    return {
        "type": "is_instance_of",
        "loc": ("body", f"is-instance[{kind}]"),
        "msg": f"Input should be an instance of {kind}",
        "input": body,
        "ctx": {"class": kind},
    }


def _unparsed(name: str, value: object, kind: str, words: str) -> dict[str, Any]:
    noun = words.partition(" ")[2]
    return {
        "type": f"{kind}_parsing",
        "loc": ("body", _STATE_REQUEST, "server_args", name, kind),
        "msg": f"Input should be a valid {noun}, unable to parse string as {words}",
        "input": value,
    }
