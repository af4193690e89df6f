"""The other endpoints, and the application that holds them all."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import orjson
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from runners.simulated_server import tokens
from runners.simulated_server.generate import BadRequestError, GenerateEndpoint
from runners.simulated_server.metrics import render
from runners.simulated_server.request import make_request
from runners.simulated_server.wall_clock import wall_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request as HttpRequest
    from starlette.types import ASGIApp, Receive, Scope, Send

    from runners.simulated_server.state import SimulatedServer

    Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]

_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or "
    "waiting requests, the operation will not be performed.)\n"
)
_HEALTH_TIMEOUT_S = 20.0
_OPEN_PATHS = frozenset({"/health", "/health_generate", "/metrics"})


class Endpoints:
    """The endpoints of one server."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def health(self, _: HttpRequest) -> Response:
        """Runs one token where the server is idle, and looks for progress every second."""
        server = self._server
        if not server.ready:
            return Response(status_code=503)
        trouble = server.misbehaviour
        if trouble is not None and trouble.phase == "serving" and trouble.health == "ok":
            return Response(status_code=200)
        engine = server.engine
        began = wall_time()
        if not engine.busy:
            ids = [0]
            prompt = tokens.fingerprint(ids)
            request = make_request(
                f"HEALTH_CHECK_{uuid.uuid4().hex}",
                ids,
                1,
                stops=False,
                streaming=False,
                arrived=asyncio.get_running_loop().time(),
                received_at=began,
                noise=1.0,
                prompt=prompt,
            )
            request.counted = False
            engine.submit(request)
        step = 1.0 / server.simulation.time_scale
        for _second in range(int(_HEALTH_TIMEOUT_S)):
            await asyncio.sleep(step)
            if engine.last_progress > began:
                return Response(status_code=200)
        server.log.main(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            f"{_HEALTH_TIMEOUT_S:.0f} seconds."
        )
        return Response(status_code=503)

    async def server_info(self, _: HttpRequest) -> Response:
        """What the server runs."""
        return _json(self._server.server_info())

    async def model_info(self, _: HttpRequest) -> Response:
        """What model it serves."""
        return _json(self._server.model_info())

    async def models(self, _: HttpRequest) -> Response:
        """OpenAI's list of models."""
        return _json(self._server.models())

    async def metrics(self, _: HttpRequest) -> Response:
        """Prometheus's page."""
        page = render(self._server.engine, self._server.served_model_name)
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def flush_cache(self, _: HttpRequest) -> Response:
        """Empties the prefix cache; refused while busy."""
        if self._server.engine.flush():
            self._server.log.scheduler("Cache flushed successfully!")
            return PlainTextResponse(_FLUSHED)
        return PlainTextResponse("Flush cache failed.\n", status_code=400)

    async def abort_request(self, request: HttpRequest) -> Response:
        """Ends requests by the beginning of their id, or all."""
        body = await _object(request)
        rid = str(body.get("rid") or "")
        self._server.engine.abort(rid, everything=bool(body.get("abort_all")))
        return Response(status_code=200)

    async def set_internal_state(self, request: HttpRequest) -> Response:
        """Switches what can be switched; answers one boolean per data-parallel rank."""
        arguments = (await _object(request)).get("server_args")
        if not isinstance(arguments, dict) or not all(
            isinstance(value, int | float) for value in arguments.values()
        ):
            raise BadRequestError.of("server_args must map names to numbers", "Bad Request")
        return _json([self._server.set_internal_state(arguments)])


def build_application(server: SimulatedServer, lifespan: Lifespan) -> ASGIApp:
    """The whole API."""
    ends = Endpoints(server)
    routes = [
        Route("/health", ends.health),
        Route("/health_generate", ends.health),
        Route("/generate", GenerateEndpoint(server), methods=["POST", "PUT"]),
        Route("/server_info", ends.server_info),
        Route("/get_server_info", ends.server_info),
        Route("/model_info", ends.model_info),
        Route("/get_model_info", ends.model_info),
        Route("/v1/models", ends.models),
        Route("/flush_cache", ends.flush_cache, methods=["GET", "POST"]),
        Route("/abort_request", ends.abort_request, methods=["POST"]),
        Route("/set_internal_state", ends.set_internal_state, methods=["POST", "PUT"]),
    ]
    if server.flags.values.get("enable_metrics"):
        routes.append(Route("/metrics", ends.metrics))
    application = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={404: _not_found, 405: _not_allowed, BadRequestError: _bad_request},
    )
    key = server.flags.values.get("api_key")
    return application if key is None else _Authorized(application, str(key))


class _Authorized:
    """Refuses everything but health and metrics without the key."""

    def __init__(self, application: ASGIApp, key: str) -> None:
        self._application = application
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN_PATHS:
            given = dict(scope["headers"]).get(b"authorization")
            if given != self._expected:
                await _json({"error": "Unauthorized"}, 401)(scope, receive, send)
                return
        await self._application(scope, receive, send)


async def _object(request: HttpRequest) -> dict[str, Any]:
    try:
        body = orjson.loads(await request.body() or b"{}")
    except orjson.JSONDecodeError as error:
        raise BadRequestError.of(f"JSON decode error: {error.msg}", "Bad Request") from error
    if not isinstance(body, dict):
        raise BadRequestError.of("the body must be a JSON object", "Bad Request")
    return body


def _json(content: object, status: int = 200) -> Response:
    data = orjson.dumps(content)
    return Response(data, status_code=status, media_type="application/json")


async def _not_found(_: HttpRequest, __: Exception) -> Response:
    return JSONResponse({"detail": "Not Found"}, status_code=404)


async def _not_allowed(_: HttpRequest, __: Exception) -> Response:
    return JSONResponse({"detail": "Method Not Allowed"}, status_code=405)


async def _bad_request(_: HttpRequest, error: Exception) -> Response:
    body = error.body if isinstance(error, BadRequestError) else {}
    return _json(body, 400)
