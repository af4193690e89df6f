"""Run loads against one server, in this process or in several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from runners.load.http.client import LoadClient, clock
from runners.load.schedule.loops import (
    Loop,
    StallDetector,
    run_watched,
    without_garbage_collection,
)
from runners.load.schedule.worker_pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from runners.load.http.client import ClientSettings
    from runners.load.http.in_flight import InFlightRequest
    from runners.load.schedule.loops import LoopReport, Plan


class Driver:
    """A client with its loop; an async context manager, bound to one event loop.

    Args:
        settings: Settings of the client.
        stall_timeout_s: Real seconds without any token after which the server counts as hung.
    """

    def __init__(self, settings: ClientSettings, stall_timeout_s: float) -> None:
        self._settings = settings
        self._stall_timeout_s = stall_timeout_s
        self._detector = StallDetector()
        self.client = LoadClient(settings, self._detector.received)

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.client.__aexit__(kind, error, trace)

    async def run(self, plan: Plan, flights: Sequence[InFlightRequest]) -> LoopReport:
        """Run a load in this process.

        Raises:
            RunnerError: The server is gone or hangs.
        """
        for flight in flights:
            self.client.prepare(flight)
        return await self._run(plan, flights)

    async def run_window(
        self,
        plan: Plan,
        flights: list[InFlightRequest],
        processes: int,
        before_start: Callable[[], Awaitable[None]],
    ) -> list[LoopReport]:
        """Run the load of a window; return the report of each process.

        Args:
            plan: Plan of the load.
            flights: Its requests in order; they hold the results afterwards.
            processes: Number of processes that share the load.
            before_start: Awaited right before the start, when all requests are encoded.

        Raises:
            RunnerError: The server is gone or hangs, or a process was lost.
        """
        if processes == 1:
            for flight in flights:
                self.client.prepare(flight)
            await before_start()
            with without_garbage_collection():
                return [await self._run(plan, flights)]
        async with WorkerPool(processes, self._settings, plan, flights) as pool:
            await before_start()
            with without_garbage_collection():
                return await pool.run(self._stall_timeout_s)

    async def _run(self, plan: Plan, flights: Sequence[InFlightRequest]) -> LoopReport:
        # Each lane has its first request; a free lane takes the next one.
        waiting = iter(range(len(plan.offsets), len(flights)))
        loop = Loop(self.client, self._detector)
        work = plan.run(loop, flights, lambda: next(waiting, None), start=clock())
        return await run_watched(work, self._detector.watch(self._stall_timeout_s))
