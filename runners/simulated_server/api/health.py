"""`/health`, `/ready` and `/ping`: what SGLang 0.5.23 says of its own state."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from starlette.responses import Response

from runners.simulated_server.engine import tokens
from runners.simulated_server.engine.clock import wall_time
from runners.simulated_server.engine.request import make_request

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from runners.simulated_server.api.state import SimulatedServer

_TIMEOUT_S = 20


class Health:
    """The endpoints of one server."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def health(self, _: HttpRequest) -> Response:
        """Runs one token where the server is idle, and looks for progress every second."""
        server = self._server
        if not server.ready:
            return Response(status_code=503)
        if (status := server.hooks.health()) is not None:
            return Response(status_code=status)
        engine = server.engine
        began = wall_time()
        if not engine.busy:
            self._submit(began)
        step = 1.0 / server.simulation.time_scale
        for _second in range(_TIMEOUT_S):
            await asyncio.sleep(step)
            if engine.last_progress > began:
                return Response(status_code=200)
        server.log.main(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            f"{_TIMEOUT_S} seconds."
        )
        return Response(status_code=503)

    async def ready(self, _: HttpRequest) -> Response:
        """Whether it takes requests: a flag, nothing is tried."""
        return Response(status_code=200 if self._server.ready else 503)

    def _submit(self, now: float) -> None:
        ids = [0]
        request = make_request(
            f"HEALTH_CHECK_{uuid.uuid4().hex}",
            ids,
            1,
            stops=False,
            streaming=False,
            arrived=asyncio.get_running_loop().time(),
            received_at=now,
            noise=1.0,
            prompt=tokens.fingerprint(ids),
        )
        request.counted = False
        self._server.engine.submit(request)
