"""Endpoints that act upon the running server: flush, abort, switch, profile and the like."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from runners.simulated_server.api.errors import (
    bad_json,
    json_response,
    missing_body,
    validation_error,
)

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from runners.simulated_server.api.state import SimulatedServer

_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or "
    "waiting requests, the operation will not be performed.)\n"
)
_POLL_S = 0.005


class Control:
    """The endpoints of one server."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def flush_cache(self, request: HttpRequest) -> Response:
        """Empties the prefix cache; refused while busy, after a wait of `timeout` seconds."""
        timeout = _timeout(request)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + timeout
        while not self._server.flush():
            if loop.time() >= give_up:
                failed = "Timed out waiting for idle state." if timeout else "Flush cache failed.\n"
                return Response(failed, 400)
            await asyncio.sleep(_POLL_S)
        self._server.log.scheduler("Cache flushed successfully!")
        return Response(_FLUSHED)

    async def abort_request(self, request: HttpRequest) -> Response:
        """Ends a request by its id, or all."""
        body = await _object(request)
        rid, everything = body.get("rid", ""), bool(body.get("abort_all"))
        if not isinstance(rid, str):
            raise validation_error(
                request.scope,
                [
                    _no_instance("AbortReq", body),
                    {
                        "type": "string_type",
                        "loc": ("body", "function-after[build_struct(), AbortReq]", "rid"),
                        "msg": "Input should be a valid string",
                        "input": rid,
                    },
                ],
            )
        self._server.abort(rid, everything=everything)
        return Response()

    async def set_internal_state(self, request: HttpRequest) -> Response:
        """Switches what can be switched; answers one boolean per data-parallel rank."""
        body = await _object(request)
        arguments = body.get("server_args")
        if not isinstance(arguments, dict):
            raise validation_error(
                request.scope, [_no_instance("SetInternalStateReq", body), _missing(body)]
            )
        numbers = {name: _number(value) for name, value in arguments.items()}
        wrong = [name for name, value in numbers.items() if value is None]
        if wrong:
            faults = [_no_instance("SetInternalStateReq", body)]
            for kind, what in (("int", "integer"), ("float", "number")):
                faults += [_unparsed(name, arguments[name], kind, what) for name in wrong]
            raise validation_error(request.scope, faults)
        good = {name: value for name, value in numbers.items() if value is not None}
        done = self._server.set_internal_state(good)
        return json_response([done])

    async def start_profile(self, _: HttpRequest) -> Response:
        """Answers as SGLang; there is nothing to profile."""
        return Response("Start profiling.\n")

    async def stop_profile(self, _: HttpRequest) -> Response:
        """Answers as SGLang; there is nothing to profile."""
        return Response("Stop profiling. This will take some time.\n")

    async def freeze_gc(self, _: HttpRequest) -> Response:
        """Answers as SGLang; the garbage collection of what the start-up left is off anyway."""
        return Response("Garbage collection frozen.\n")

    async def configure_logging(self, request: HttpRequest) -> Response:
        """Takes the options, and logs no more and no less than before."""
        await _object(request)
        return Response()


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
    fault: dict[str, Any] = {"loc": ("query", "timeout"), "input": given}
    try:
        seconds = float(given)
    except ValueError:
        message = "Input should be a valid number, unable to parse string as a number"
        fault = {"type": "float_parsing", "loc": fault["loc"], "msg": message, "input": given}
        raise validation_error(request.scope, [fault]) from None
    if seconds < 0.0:
        fault = {
            "type": "greater_than_equal",
            "loc": fault["loc"],
            "msg": "Input should be greater than or equal to 0",
            "input": given,
            "ctx": {"ge": 0.0},
        }
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


def _missing(body: object) -> dict[str, Any]:
    return {
        "type": "missing",
        "loc": ("body", "function-after[build_struct(), SetInternalStateReq]", "server_args"),
        "msg": "Field required",
        "input": body,
    }


def _unparsed(name: str, value: object, kind: str, what: str) -> dict[str, Any]:
    where = "function-after[build_struct(), SetInternalStateReq]"
    article = "an" if what == "integer" else "a"
    return {
        "type": f"{kind}_parsing",
        "loc": ("body", where, "server_args", name, kind),
        "msg": f"Input should be a valid {what}, unable to parse string as {article} {what}",
        "input": value,
    }
