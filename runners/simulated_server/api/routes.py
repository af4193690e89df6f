"""Routes of the HTTP API, and the check of API keys (SGLang 0.5.23, `srt/utils/auth.py`)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from runners.simulated_server.api.endpoints import Control, Health, Information
from runners.simulated_server.api.errors import ApiError
from runners.simulated_server.api.generate import GenerateEndpoint
from runners.simulated_server.api.metrics import CountHttp, HttpCounts
from runners.simulated_server.api.openai import ChatEndpoint, CompletionsEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request as HttpRequest
    from starlette.types import ASGIApp, Receive, Scope, Send

    from runners.simulated_server.api.state import SimulatedServer

    Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


_OPEN = ("/health", "/ready", "/metrics")

ADMIN_PATHS = frozenset({"/abort_request", "/flush_cache", "/set_internal_state"})
"""Paths that require the admin key, if there is one (SGLang's `ADMIN_OPTIONAL`)."""


class Authorization:
    """Refuses requests without the right key; health, readiness and metrics stay open.

    Args:
        api_key: `--api-key`.
        admin_api_key: `--admin-api-key`.
    """

    def __init__(
        self, application: ASGIApp, api_key: str | None, admin_api_key: str | None
    ) -> None:
        self._application = application
        self._api_key = api_key
        self._admin_api_key = admin_api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._allowed(scope):
            await ApiError({"error": "Unauthorized"}, 401).response()(scope, receive, send)
            return
        await self._application(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if scope["method"] == "OPTIONS" or path.startswith(_OPEN):
            return True
        admin = path in ADMIN_PATHS and self._admin_api_key is not None
        key = self._admin_api_key if admin else self._api_key
        if key is None:
            return True
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        scheme, _, token = given.partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(token, key)


_POST = ["POST"]
_GET_POST = ["GET", "POST"]
_POST_PUT = ["POST", "PUT"]


def build_application(server: SimulatedServer, lifespan: Lifespan) -> ASGIApp:
    """Build the part of SGLang 0.5.23's API that the tuner and benchmark clients call.

    `/metrics` needs `--enable-metrics`. An unknown path is 404, a wrong method 405.
    """
    counts = HttpCounts()
    information, control, health = Information(server, counts), Control(server), Health(server)
    routes = [
        Route("/", information.root),
        _get("/ready", health.ready),
        _get("/health", health.health),
        _get("/health_generate", health.health),
        Route("/generate", GenerateEndpoint(server), methods=_POST_PUT),
        Route("/v1/completions", CompletionsEndpoint(server), methods=_POST),
        Route("/v1/chat/completions", ChatEndpoint(server), methods=_POST),
        _get("/server_info", information.server_info),
        _get("/get_server_info", information.get_server_info),
        _get("/model_info", information.model_info),
        _get("/get_model_info", information.get_model_info),
        _get("/v1/models", information.models),
        _get("/v1/models/{model:path}", information.model),
        Route("/flush_cache", control.flush_cache, methods=_GET_POST),
        Route("/abort_request", control.abort_request, methods=_POST),
        Route("/set_internal_state", control.set_internal_state, methods=_POST_PUT),
    ]
    if server.enable_metrics:
        routes += [
            Route("/metrics", information.metrics),
            Route("/metrics/", information.metrics),
        ]
    application = Starlette(
        routes=routes,
        # Inside the application, as in SGLang: an uncaught exception gets no CORS headers.
        middleware=[Middleware(CORSMiddleware, **_ANY_ORIGIN)],
        lifespan=lifespan,
        exception_handlers={404: _not_found, 405: _not_allowed, ApiError: _refused},
    )
    application.router.redirect_slashes = False
    served: ASGIApp = application
    if server.enable_metrics:
        served = CountHttp(application, counts)
    keys = [server.flags.values.get(name) for name in ("api_key", "admin_api_key")]
    return Authorization(served, *keys) if any(keys) else served


_ANY_ORIGIN: dict[str, Any] = {
    "allow_origins": ["*"],
    "allow_credentials": True,
    "allow_methods": ["*"],
    "allow_headers": ["*"],
}


def _get(path: str, endpoint: Callable[[HttpRequest], object]) -> Route:
    """Make a route for GET only: FastAPI, unlike Starlette, does not add HEAD."""
    route = Route(path, endpoint)
    route.methods = {"GET"}
    return route


async def _not_found(_: HttpRequest, __: Exception) -> Response:
    return JSONResponse({"detail": "Not Found"}, status_code=404)


async def _not_allowed(_: HttpRequest, error: Exception) -> Response:
    headers = getattr(error, "headers", None)
    return JSONResponse({"detail": "Method Not Allowed"}, status_code=405, headers=headers)


async def _refused(_: HttpRequest, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error.response()
