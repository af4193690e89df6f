"""Runs loads against one server: in this process, or with several."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from runners.load.http.client import LoadClient, clock
from runners.load.schedule.loops import Loop, Pulse, no_collection, watched
from runners.load.schedule.processes import Crew
from runners.load.window.window import Window, end_of_burst

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from runners.load.http.client import ClientSettings
    from runners.load.schedule.loops import LoopReport
    from runners.load.schedule.plan import Plan
    from runners.load.window.in_flight import InFlightRequest


class Driver:
    """A client with its loop; an async context manager, bound to one event loop.

    Args:
        settings: How the server is spoken to.
        stall_timeout_s: Longest silence of all requests together before it is a hang.
    """

    def __init__(self, settings: ClientSettings, stall_timeout_s: float) -> None:
        self._settings = settings
        self._stall_timeout_s = stall_timeout_s
        self._pulse = Pulse()
        self.client = LoadClient(settings, self._pulse.heard)

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
        """Runs a load in this process.

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
        come_to_rest: Callable[[], Awaitable[None]],
    ) -> Window:
        """Runs a load that counts.

        Args:
            plan: When it is sent.
            flights: What is sent, in order; what became of it is in them afterwards.
            processes: How many share it.
            come_to_rest: Awaited once all is prepared, right before the start.

        Raises:
            RunnerError: The server is gone or hangs, or a process was lost.
        """
        if processes == 1:
            for flight in flights:
                self.client.prepare(flight)
            await come_to_rest()
            with no_collection():
                reports = [await self._run(plan, flights)]
        else:
            async with Crew(processes, self._settings, plan, flights) as crew:
                await come_to_rest()
                with no_collection():
                    reports = await crew.run(self._stall_timeout_s)
        return window_of(plan, flights, reports)

    async def _run(self, plan: Plan, flights: Sequence[InFlightRequest]) -> LoopReport:
        # The first of each lane is set; the others go to whichever lane is free.
        waiting = iter(range(len(plan.offsets), len(flights)))
        loop = Loop(self.client, self._pulse)
        work = plan.run(loop, flights, lambda: next(waiting, None), start=clock())
        return await watched(work, self._pulse.watch(self._stall_timeout_s))


def window_of(
    plan: Plan, flights: Sequence[InFlightRequest], reports: Sequence[LoopReport]
) -> Window:
    """Decide when the window opened and closed, and which requests are the ramp's."""
    ramp: tuple[InFlightRequest, ...]
    counted: Sequence[InFlightRequest]
    if plan.is_open:
        # After its ramp it opens with an arrival and closes with the last one.
        sent = sorted(flight.sent for flight in flights)
        opened, closed = sent[plan.ramp], sent[-1]
        ramp, counted = (), flights
    else:
        ramp, counted = tuple(flights[: plan.ramp]), flights[plan.ramp :]
        if ramp:
            # With the whole forward in which the last of three quarters of the lanes ended.
            opened = end_of_burst(flights, sorted(f.last for f in ramp)[-1 - len(ramp) // 4])
        else:
            opened = min(flight.sent for flight in flights[: len(plan.offsets)])
        idle = max(opened, min(report.idle for report in reports))
        closed = end_of_burst(flights, idle)
    return Window(
        started_at=time.time() - (clock() - opened),
        opened=opened,
        closed=closed,
        flights=tuple(counted),
        ramp=ramp,
        client_cpu_share=max(report.cpu_share for report in reports),
        client_pauses=tuple(report.pauses for report in reports),
    )
