"""The HTTP server: notes arrivals, says when it listens, and takes SIGTERM as SGLang, or badly."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from runners.simulated_server.api.jobs import ARRIVED, CONNECTION

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from types import FrameType

    from runners.simulated_server.api.state import SimulatedServer
    from runners.simulated_server.faults.misbehaviour import Misbehaviour


_POLL_S = 5.0
"""Seconds between two looks at whether all requests have ended (`sigterm_watchdog`)."""


class ArrivalProtocol(H11Protocol):
    """uvicorn's HTTP protocol; a request's task inherits its time of arrival and connection.

    So reading a request's bytes does not slow the simulation.
    """

    def data_received(self, data: bytes) -> None:
        """Takes bytes from the connection."""
        ARRIVED.set(self.loop.time())
        CONNECTION.set(self.transport)
        super().data_received(data)


class HttpServer(uvicorn.Server):
    """Serves until it is told to end.

    Args:
        config: uvicorn's.
        listening: Set once the port is bound.
        server: What is served.
        troubles: What goes wrong.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: asyncio.Event,
        server: SimulatedServer,
        troubles: Sequence[Misbehaviour],
    ) -> None:
        super().__init__(config)
        self._listening = listening
        self._log = server.log
        self._live = server.live
        self._poll_s = _POLL_S / server.simulation.time_scale
        self._deaf = any(trouble.kind == "ignore_sigterm" for trouble in troubles)
        slow = [trouble.delay_s for trouble in troubles if trouble.kind == "slow_sigterm"]
        self._delay_s = max(slow, default=0.0) / server.simulation.time_scale

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
            loop = asyncio.get_event_loop()
            loop.call_soon_threadsafe(loop.call_later, self._delay_s, self._drain)
            return
        super().handle_exit(sig, frame)

    def _drain(self) -> None:
        """Ends once nobody is served any more; serves new requests too until then (0.5.23)."""
        rids = list(self._live)
        self._log.main(
            f"Gracefully exiting... Remaining number of requests {len(rids)}. Remaining requests "
            f"remaining_rids={rids}."
        )
        if rids:
            asyncio.get_running_loop().call_later(self._poll_s, self._drain)
        else:
            super().handle_exit(signal.SIGTERM, None)
