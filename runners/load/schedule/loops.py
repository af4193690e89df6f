"""Closed and open loops: when requests are sent, and by whom a silence is noticed.

One loop runs in one event loop of one process. Several processes that share a load each run one
over their part of it (`runners.load.schedule.processes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from runners.load.checks.pauses import ClientPauses, PauseMonitor
from runners.load.http.client import clock, load_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from typing import Any

    from runners.base import RunnerError
    from runners.load.http.client import LoadClient
    from runners.load.window.in_flight import InFlightRequest

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Send:
    """One request that is sent at a set time.

    Attributes:
        index: Its place among the flights of the load.
        at: The clock's reading at which it is sent.
    """

    index: int
    at: float


@dataclass(frozen=True, slots=True)
class LoopReport:
    """What a loop tells of itself.

    Attributes:
        idle: The clock's reading when it first found nothing more to send.
        cpu_share: CPU seconds of the loop's thread per second, from the last request of its first
            wave (closed loop) or its first request (open loop) until `idle`. A client process has
            no other thread at work, so the share never exceeds this one core.
        pauses: When its process did not run.
    """

    idle: float
    cpu_share: float
    pauses: ClientPauses = field(default_factory=ClientPauses)


class Pulse:
    """Knows since when a server that has something to do has said nothing.

    An open loop may have nothing in flight, which is no silence. A request that timed out was no
    sign of life either: a server that hangs is found although its requests are given up one by
    one.
    """

    def __init__(self) -> None:
        self._in_flight = 0
        self.silent_since = math.inf

    def heard(self, now: float) -> None:
        """Notes a chunk."""
        self.silent_since = now

    def sent(self, now: float) -> None:
        """Notes that a request was sent."""
        self._in_flight += 1
        self.silent_since = min(self.silent_since, now)

    def ended(self, now: float, *, timed_out: bool) -> None:
        """Notes that a request has ended."""
        self._in_flight -= 1
        if not timed_out:
            self.silent_since = now if self._in_flight else math.inf

    async def watch(self, timeout_s: float) -> None:
        """Returns only by raising.

        Raises:
            RunnerError: Nothing was heard for `timeout_s`.
        """
        while True:
            silence = clock() - self.silent_since
            if silence >= timeout_s:
                raise stall(timeout_s)
            await asyncio.sleep(min(timeout_s, timeout_s - silence))


def stall(timeout_s: float) -> RunnerError:
    """The failure of a server that says nothing more."""
    message = f"no token from any request for {timeout_s:g} s: the server hangs under load"
    return load_error("stall", "configuration", message)


class Loop:
    """Sends flights through one client.

    Args:
        client: Connected to the server; its `on_chunk` is the pulse's `heard`.
        pulse: Told of every request.
    """

    def __init__(self, client: LoadClient, pulse: Pulse) -> None:
        self._client = client
        self._pulse = pulse

    async def closed(
        self,
        flights: Sequence[InFlightRequest],
        first: Sequence[Send],
        more: Callable[[], int | None],
    ) -> LoopReport:
        """Keeps `len(first)` requests in flight.

        Args:
            flights: The whole load, in the order of sending.
            first: The first request of each lane, and when it is sent.
            more: The next flight to send once a lane is free; `None` when there is none.

        Raises:
            RunnerError: The server is gone.
        """
        meter = _Meter(len(first))

        async def lane(send: Send) -> None:
            await _until(send.at)
            meter.sent()
            index: int | None = send.index
            while index is not None:
                await self._fly(flights[index])
                index = more()
            meter.idle()

        with PauseMonitor() as monitor:
            await together([lane(send) for send in first])
        return meter.report(monitor.report())

    async def open(self, flights: Sequence[InFlightRequest], sends: Sequence[Send]) -> LoopReport:
        """Sends each request when it is due, whatever the server does.

        Raises:
            RunnerError: The server is gone.
        """
        meter = _Meter(1)

        async def dispatch(group: asyncio.TaskGroup) -> None:
            for send in sends:
                await _until(send.at)
                meter.sent()
                flights[send.index].due = send.at
                group.create_task(self._fly(flights[send.index]))
            # What was just created has its turn first: it is sent before the window closes.
            await asyncio.sleep(0)
            meter.idle()

        with _first_of_group(), PauseMonitor() as monitor:
            async with asyncio.TaskGroup() as group:
                group.create_task(dispatch(group))
        return meter.report(monitor.report())

    async def _fly(self, flight: InFlightRequest) -> None:
        self._pulse.sent(clock())
        try:
            await self._client.generate(flight)
        finally:
            self._pulse.ended(clock(), timed_out=flight.timed_out)


class _Meter:
    """Notes when a loop is whole and when idle, and the CPU that its thread took between them."""

    def __init__(self, lanes: int) -> None:
        self._left = lanes
        self._whole = self._idle = clock()
        self._is_idle = lanes == 0
        self._cpu_whole = self._cpu_idle = time.thread_time()

    def sent(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._whole, self._cpu_whole = clock(), time.thread_time()

    def idle(self) -> None:
        if not self._is_idle:
            self._is_idle = True
            self._idle, self._cpu_idle = clock(), time.thread_time()

    def report(self, pauses: ClientPauses) -> LoopReport:
        seconds = self._idle - self._whole
        share = (self._cpu_idle - self._cpu_whole) / seconds if seconds > 0 else 0.0
        return LoopReport(self._idle, max(0.0, share), pauses)


async def watched(work: Coroutine[Any, Any, _T], watch: Coroutine[Any, Any, None]) -> _T:
    """Runs `work` to its end, or until `watch` raises."""
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


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keeps Python's garbage collector out of a window: a full pass takes tens of milliseconds."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def together(work: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Runs all of `work` at once; where one fails the others are cancelled, and gone."""
    with _first_of_group():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]


@contextlib.contextmanager
def _first_of_group() -> Iterator[None]:
    """The first failure stands for all: they have one cause, the server."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _until(at: float) -> None:
    delay = at - clock()
    if delay > 0:
        await asyncio.sleep(delay)
