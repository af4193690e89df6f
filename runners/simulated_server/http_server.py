"""The HTTP server: says when it listens, and takes SIGTERM as SGLang does, or badly."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from types import FrameType

    from runners.simulated_server.log import ServerLog
    from runners.simulated_server.misbehaviour import Misbehaviour


class HttpServer(uvicorn.Server):
    """Serves until it is told to end.

    Args:
        config: uvicorn's.
        listening: Set once the port is bound.
        log: The log.
        troubles: What goes wrong.
        time_scale: Simulated seconds per real second.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: asyncio.Event,
        log: ServerLog,
        troubles: Sequence[Misbehaviour],
        time_scale: float,
    ) -> None:
        super().__init__(config)
        self._listening = listening
        self._log = log
        self._deaf = any(trouble.kind == "ignore_sigterm" for trouble in troubles)
        slow = [trouble.delay_s for trouble in troubles if trouble.kind == "slow_sigterm"]
        self._delay_s = max(slow, default=0.0) / time_scale

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Binds the port."""
        await super().startup(sockets)
        if self.started:
            self._listening.set()

    def listening_sockets(self) -> list[int]:
        """Descriptors of the sockets that it listens on."""
        return [sock.fileno() for server in self.servers for sock in server.sockets]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to end."""
        if sig == signal.SIGTERM:
            self._log.main(
                "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
            )
            if self._deaf:
                return
            if self._delay_s:
                loop = asyncio.get_event_loop()
                loop.call_soon_threadsafe(
                    loop.call_later, self._delay_s, super().handle_exit, sig, frame
                )
                return
            self._log.main(
                "Gracefully exiting... Remaining number of requests 0. Remaining requests "
                "remaining_rids=[]."
            )
        super().handle_exit(sig, frame)
