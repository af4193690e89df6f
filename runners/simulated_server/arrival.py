"""Notes when a request's bytes arrive, so that reading them does not slow the simulation."""

from __future__ import annotations

from uvicorn.protocols.http.h11_impl import H11Protocol

from runners.simulated_server.jobs import ARRIVED, CONNECTION


class ArrivalProtocol(H11Protocol):
    """uvicorn's HTTP protocol; a request's task inherits its time of arrival and connection."""

    def data_received(self, data: bytes) -> None:
        """Takes bytes from the connection."""
        ARRIVED.set(self.loop.time())
        CONNECTION.set(self.transport)
        super().data_received(data)
