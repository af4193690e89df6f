"""Notes when a request's bytes arrive, so that reading them does not slow the simulation."""

from __future__ import annotations

from uvicorn.protocols.http.h11_impl import H11Protocol

from runners.simulated_server.generate import ARRIVED


class ArrivalProtocol(H11Protocol):
    """uvicorn's HTTP protocol; a request's task inherits its time of arrival."""

    def data_received(self, data: bytes) -> None:
        """Takes bytes from the connection."""
        ARRIVED.set(self.loop.time())
        super().data_received(data)
