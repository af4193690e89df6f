"""Misbehaviours at the door: calls that hang with the scheduler, and a crash at the flush."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from runners.simulated_server.engine import Engine
    from runners.simulated_server.misbehaviour import Misbehaviour

_ASK_THE_SCHEDULER = frozenset(
    {
        *("/server_info", "/get_server_info", "/flush_cache", "/set_internal_state"),
        *("/v1/loads", "/get_load"),
    }
)
"""What SGLang's HTTP server cannot answer by itself; `/metrics` and `/model_info` it can."""


class Gate:
    """Stands before the whole API of a misbehaving server.

    Args:
        application: The API.
        troubles: What goes wrong.
        engine: The scheduler.
        dead: Set once the scheduler answers nobody.
        die: Ends the server.
    """

    def __init__(
        self,
        application: ASGIApp,
        troubles: Sequence[Misbehaviour],
        engine: Engine,
        dead: asyncio.Event,
        die: Callable[[Misbehaviour], None],
    ) -> None:
        self._application = application
        self._at_flush = [t for t in troubles if t.kind == "exit" and t.phase == "flush"]
        self._engine = engine
        self._dead = dead
        self._die = die

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, or not."""
        path = scope.get("path", "")
        if self._dead.is_set() and path in _ASK_THE_SCHEDULER:
            await asyncio.Event().wait()
        if path == "/flush_cache":
            served = self._engine.served
            for trouble in self._at_flush:
                if served and served >= trouble.after_requests:
                    self._die(trouble)
        await self._application(scope, receive, send)
