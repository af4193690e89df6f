"""Closed and open loops: send requests on schedule and detect a stalled server.

A loop runs in one event loop of one process. If several processes share a load, each runs a loop
over its part (`runners.load.schedule.worker_pool`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from runners.load.http.client import clock, load_error
from runners.load.schedule.pauses import ClientPauses, PauseMonitor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from typing import Any

    from runners.base import RunnerError
    from runners.load.http.client import LoadClient
    from runners.load.http.in_flight import InFlightRequest
    from runners.load.schedule.arrivals import ArrivalProcess

_T = TypeVar("_T")

_LARGEST_RAMP = 0.25
"""Largest share of an open loop's requests in the ramp."""


@dataclass(frozen=True, slots=True)
class LoopReport:
    """Result of one loop.

    Attributes:
        idle: Clock reading when the loop first had no more requests to send.
        cpu_share: CPU seconds of the loop's thread per second, until `idle`. The measurement starts
            when all lanes have started (closed loop), or with the first request (open loop). A
            client process has no other busy thread, so the share never exceeds one core.
        pauses: Times when the process did not run.
    """

    idle: float
    cpu_share: float
    pauses: ClientPauses = field(default_factory=ClientPauses)


class StallDetector:
    """Record since when a server with requests in flight has sent no token.

    Without requests in flight there is no silence (open loop). A request that timed out does not
    end the silence: a hung server is found although its requests are given up one by one.
    """

    def __init__(self) -> None:
        self._in_flight = 0
        self.silent_since = math.inf

    def received(self, now: float) -> None:
        """Record a chunk."""
        self.silent_since = now

    def sent(self, now: float) -> None:
        """Record that a request was sent."""
        self._in_flight += 1
        self.silent_since = min(self.silent_since, now)

    def ended(self, now: float, *, timed_out: bool) -> None:
        """Record that a request has ended."""
        self._in_flight -= 1
        if not timed_out:
            self.silent_since = now if self._in_flight else math.inf

    async def watch(self, timeout_s: float) -> None:
        """Wait for a stall; never return without an exception.

        Raises:
            RunnerError: No token arrived for `timeout_s`.
        """
        while True:
            silence = clock() - self.silent_since
            if silence >= timeout_s:
                raise stall_error(timeout_s)
            await asyncio.sleep(min(timeout_s, timeout_s - silence))


def stall_error(timeout_s: float) -> RunnerError:
    """Return the error for a server that sends no more tokens."""
    message = f"no token from any request for {timeout_s:g} s: the server hangs under load"
    return load_error("stall", "configuration", message)


class Loop:
    """Send requests through one client.

    Args:
        client: Client of the server; `detector.received` is its `on_chunk`.
        detector: Records every request.
    """

    def __init__(self, client: LoadClient, detector: StallDetector) -> None:
        self._client = client
        self._detector = detector

    async def closed(
        self,
        flights: Sequence[InFlightRequest],
        first: Sequence[int],
        next_index: Callable[[], int | None],
        start: float,
    ) -> LoopReport:
        """Keep `len(first)` requests in flight.

        Args:
            flights: All requests of the load in the order of sending.
            first: Index of the first request of each lane.
            next_index: Returns the index of the next request for a free lane; `None` at the end.
            start: Clock reading at which all lanes start.

        Raises:
            RunnerError: The server is gone.
        """
        meter = _CpuMeter(len(first))

        async def lane(index: int | None) -> None:
            meter.started()
            while index is not None:
                await self._send(flights[index])
                index = next_index()
            meter.idle()

        await _sleep_until(start)
        with PauseMonitor() as monitor:
            await run_all([lane(index) for index in first])
        return meter.report(monitor.report())

    async def open(
        self, flights: Sequence[InFlightRequest], indices: Sequence[int], due: Sequence[float]
    ) -> LoopReport:
        """Send each request when it is due, whatever the server does.

        Args:
            flights: All requests of the load.
            indices: Index of each request that this loop sends.
            due: Clock reading at which each of these requests is sent.

        Raises:
            RunnerError: The server is gone.
        """
        meter = _CpuMeter(1)

        async def dispatch(group: asyncio.TaskGroup) -> None:
            for index, at in zip(indices, due, strict=True):
                await _sleep_until(at)
                meter.started()
                flights[index].due = at
                group.create_task(self._send(flights[index]))
            # The newest tasks run first, so that they send before the window closes.
            await asyncio.sleep(0)
            meter.idle()

        with _first_error_of_group(), PauseMonitor() as monitor:
            async with asyncio.TaskGroup() as group:
                group.create_task(dispatch(group))
        return meter.report(monitor.report())

    async def _send(self, flight: InFlightRequest) -> None:
        self._detector.sent(clock())
        try:
            await self._client.generate(flight)
        finally:
            self._detector.ended(clock(), timed_out=flight.timed_out)


@dataclass(frozen=True, slots=True)
class Plan:
    """Schedule of a load for one process, or for several processes with a common start.

    Attributes:
        offsets: Real seconds from the start to each request (open loop), or to each lane's first
            request (closed loop).
        is_open: Whether the load is an open loop.
        ramp: Number of ramp requests. In a closed loop they are the first request of each lane,
            with a shortened answer (`ramp_lengths`), and are in no sample. In an open loop they are
            the requests before the window.
    """

    offsets: tuple[float, ...]
    is_open: bool = False
    ramp: int = 0

    async def run(
        self,
        loop: Loop,
        flights: Sequence[InFlightRequest],
        next_index: Callable[[], int | None],
        *,
        start: float,
        part: int = 0,
        parts: int = 1,
    ) -> LoopReport:
        """Run one part of the plan.

        Args:
            loop: Sends the requests.
            flights: All requests of the load, including those of other parts.
            next_index: Returns the next request of a closed loop; `None` at the end.
            start: Clock reading at the start.
            part: Index of the part.
            parts: Number of parts; each part gets every `parts`-th request or lane.

        Raises:
            RunnerError: The server is gone.
        """
        indices = range(part, len(self.offsets), parts)
        if self.is_open:
            due = [start + self.offsets[index] for index in indices]
            return await loop.open(flights, indices, due)
        return await loop.closed(flights, indices, next_index, start)


def closed_plan(lanes: int, *, ramp: bool = False) -> Plan:
    """Plan a closed loop whose lanes all start at once.

    Args:
        lanes: Requests in flight.
        ramp: Whether each lane starts with a ramp request.
    """
    return Plan((0.0,) * lanes, ramp=lanes if ramp else 0)


def open_plan(arrivals: ArrivalProcess, ramp_s: float | None, time_scale: float) -> Plan:
    """Plan an open loop; the first arrivals of a stationary process are its ramp.

    Ramp requests meet an empty server. The ramp has at most a quarter of the requests.

    Args:
        arrivals: Arrival times in server seconds.
        ramp_s: Real seconds of the ramp, as long as one request takes; `None` for no ramp.
        time_scale: Simulated seconds per real second.
    """
    offsets = tuple(time / time_scale for time in arrivals.times)
    ramp = 0
    if arrivals.stationary and ramp_s is not None:
        before = sum(offset < ramp_s for offset in offsets)
        ramp = min(before, int(_LARGEST_RAMP * len(offsets)))
    return Plan(offsets, is_open=True, ramp=ramp)


class _CpuMeter:
    """Measure the CPU time of a loop between the start of its last lane and its first idle lane."""

    def __init__(self, lanes: int) -> None:
        self._waiting = lanes
        self._is_idle = lanes == 0
        self._begin = self._end = clock()
        self._cpu_begin = self._cpu_end = time.thread_time()

    def started(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._begin, self._cpu_begin = clock(), time.thread_time()

    def idle(self) -> None:
        if not self._is_idle:
            self._is_idle = True
            self._end, self._cpu_end = clock(), time.thread_time()

    def report(self, pauses: ClientPauses) -> LoopReport:
        seconds = self._end - self._begin
        share = (self._cpu_end - self._cpu_begin) / seconds if seconds > 0 else 0.0
        return LoopReport(self._end, max(0.0, share), pauses)


async def run_watched(work: Coroutine[Any, Any, _T], watch: Coroutine[Any, Any, None]) -> _T:
    """Run `work` to its end, or until `watch` raises."""
    tasks = (asyncio.ensure_future(work), asyncio.ensure_future(watch))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[1].done():
            tasks[1].result()
        return await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_all(work: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run all coroutines at once; if one fails, cancel and await the others."""
    with _first_error_of_group():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch Python's garbage collector off in a window: a full pass takes tens of milliseconds."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _first_error_of_group() -> Iterator[None]:
    """Raise only the first error of a group: all have the same cause, the server."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _sleep_until(at: float) -> None:
    delay = at - clock()
    if delay > 0:
        await asyncio.sleep(delay)
