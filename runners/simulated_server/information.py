"""Endpoints that only tell: what is run, served and carried, and the counters."""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from runners.simulated_server import loads
from runners.simulated_server.errors import json_response
from runners.simulated_server.metrics import render

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from runners.simulated_server.http_counts import HttpCounts
    from runners.simulated_server.state import SimulatedServer

_PAGE = "text/plain; version=0.0.4; charset=utf-8"


class Information:
    """The endpoints of one server.

    Args:
        server: It.
        counts: Its HTTP requests so far.
    """

    def __init__(self, server: SimulatedServer, counts: HttpCounts) -> None:
        self._server = server
        self._counts = counts

    async def root(self, _: HttpRequest) -> Response:
        """A greeting."""
        return json_response("SGLang is running")

    async def server_info(self, _: HttpRequest) -> Response:
        """What the server runs."""
        return json_response(self._server.server_info())

    async def get_server_info(self, request: HttpRequest) -> Response:
        """The same under its old name."""
        self._deprecated("server_info")
        return await self.server_info(request)

    async def model_info(self, _: HttpRequest) -> Response:
        """What model it serves."""
        return json_response(self._server.model_info())

    async def get_model_info(self, request: HttpRequest) -> Response:
        """The same under its old name."""
        self._deprecated("model_info")
        return await self.model_info(request)

    async def models(self, _: HttpRequest) -> Response:
        """OpenAI's list of models."""
        return json_response({"object": "list", "data": [self._card()]})

    async def model(self, request: HttpRequest) -> Response:
        """One model of the list."""
        asked = request.path_params["model"]
        if asked == self._server.served_model_name:
            return json_response(self._card())
        error = {
            "message": f"The model '{asked}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return json_response({"error": error}, 404)

    async def loads(self, request: HttpRequest) -> Response:
        """What the scheduler carries."""
        found = loads.answer(self._server, request)
        if isinstance(found, str):
            return Response(found, media_type=_PAGE)
        return json_response(found)

    async def metrics(self, request: HttpRequest) -> Response:
        """Prometheus's page; compressed where the client takes that, as its library does."""
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

    def _deprecated(self, name: str) -> None:
        self._server.log.main(
            f"Endpoint '/get_{name}' is deprecated and will be removed in a future version. "
            f"Please use '/{name}' instead."
        )
