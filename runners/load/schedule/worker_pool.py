"""Run a load against one server, in this process or in several.

Several processes are used when one core is too slow for all streams.

A client without enough CPU reads tokens late, and the server then looks slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from runners.base import RunnerError
from runners.load.http.client import LoadClient, clock, load_error
from runners.load.schedule.ipc import Alive, Done, Failed, Go, Order, Ready, encode, receive
from runners.load.schedule.loops import (
    Loop,
    StallDetector,
    run_all,
    run_watched,
    stall_error,
    without_garbage_collection,
)
from runners.load.schedule.worker import ALIVE_S, INDEX_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from runners.load.http.client import ClientSettings
    from runners.load.http.in_flight import InFlightRequest
    from runners.load.schedule.loops import LoopReport, Plan


_FULL = 0.6
"""Share of a core above which more processes are started: bursts exceed the mean."""
_COMFORTABLE = 0.4
"""Intended share of a core per process, if there are several."""
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0
_LEAD_S = 0.05
"""Real seconds between the `Go` message and the start, so that all workers have received it."""


def processes_for(cpu_share: float, processes: int = 1) -> int:
    """Return the number of processes for a load, limited by the number of cores.

    Args:
        cpu_share: Measured CPU seconds per second of the busiest process.
        processes: Number of processes in that measurement.
    """
    if cpu_share <= _FULL:
        return processes
    wanted = math.ceil(processes * cpu_share / _COMFORTABLE)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(processes, min(wanted, cores or 1))


class WorkerPool:
    """Worker processes for one load; an async context manager, bound to one event loop.

    All workers end with the pool. If this process is killed, the workers end too, because their
    standard input closes.

    Args:
        processes: Number of processes.
        client: Settings of their clients.
        plan: Plan of the load.
        flights: Requests of the load; `run` replaces each by the request that a worker sent.
    """

    def __init__(
        self, processes: int, client: ClientSettings, plan: Plan, flights: list[InFlightRequest]
    ) -> None:
        self._client = client
        self._plan = plan
        self._flights = flights
        self._parts = min(processes, len(plan.offsets))
        self._workers: list[asyncio.subprocess.Process] = []
        self._queue = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __aexit__
        self._silent_since: dict[int, float] = {}
        self._latest = -math.inf

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._start()
        except TimeoutError:
            await self._end()
            raise _worker_lost("did not start in time") from None
        except OSError as error:
            await self._end()
            raise _worker_lost(f"could not be started ({error})") from error
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._end()

    async def run(self, stall_timeout_s: float) -> list[LoopReport]:
        """Run the load to its end.

        Raises:
            RunnerError: The server is gone or hangs, or a worker was lost.
        """
        go = encode(Go(clock() + _LEAD_S))
        for worker in self._workers:
            _stdin(worker).write(go)
        work = run_all([self._finish(part) for part in range(self._parts)])
        return await run_watched(work, self._watch(stall_timeout_s))

    async def _start(self) -> None:
        waiting = range(len(self._plan.offsets), len(self._flights))
        if not self._plan.is_open:
            self._queue.write(b"".join(index.to_bytes(INDEX_BYTES) for index in waiting))
            self._queue.flush()
            self._queue.seek(0)
        requests = tuple((flight.prompt, flight.body) for flight in self._flights)
        for part in range(self._parts):
            worker = await self._spawn()
            self._workers.append(worker)
            order = Order(self._client, self._plan, part, self._parts, requests)
            _stdin(worker).write(encode(order))
        for worker in self._workers:
            with contextlib.suppress(ConnectionError):
                await _stdin(worker).drain()
            if not isinstance(await receive(_stdout(worker)), Ready):
                raise _worker_lost("ended before the load started")

    async def _spawn(self) -> asyncio.subprocess.Process:
        # Workers import this package from its own folder, not from the current folder.
        here = str(Path(__file__).parents[3])
        known = os.environ.get("PYTHONPATH")
        path = os.pathsep.join((here, known) if known else (here,))
        queue = self._queue.fileno()
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "runners.load.schedule.worker", str(queue)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(queue,),
            env=os.environ | {"PYTHONPATH": path},
            # Only the parent handles a Ctrl-C at the terminal.
            start_new_session=True,
        )

    async def _finish(self, part: int) -> LoopReport:
        while True:
            message = await receive(_stdout(self._workers[part]))
            if isinstance(message, Alive):
                self._silent_since[part] = message.silent_since
                if message.silent_since < math.inf:
                    self._latest = max(self._latest, message.silent_since)
            elif isinstance(message, Done):
                self._silent_since[part] = math.inf
                for index, flight in message.sent.items():
                    self._flights[index] = flight
                return message.report
            elif isinstance(message, Failed):
                raise RunnerError(message.failure)
            else:
                raise _worker_lost("ended under load")

    async def _watch(self, stall_timeout_s: float) -> None:
        # A worker's last message is up to `ALIVE_S` old.
        limit = stall_timeout_s + ALIVE_S
        while True:
            waits = any(since < math.inf for since in self._silent_since.values())
            silence = clock() - self._latest if waits else 0.0
            if silence >= limit:
                raise stall_error(stall_timeout_s)
            await asyncio.sleep(min(limit, limit - silence))

    async def _end(self) -> None:
        for worker in self._workers:
            _stdin(worker).close()
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await asyncio.gather(*map(_wait_for_end, self._workers))
        except TimeoutError:
            pass
        finally:
            self._queue.close()
            for worker in self._workers:
                with contextlib.suppress(ProcessLookupError):
                    worker.kill()
            for worker in self._workers:
                await worker.wait()


async def _wait_for_end(worker: asyncio.subprocess.Process) -> None:
    """Read a worker's output until it ends, so that a full pipe cannot block it."""
    while await _stdout(worker).read(1 << 16):
        pass
    await worker.wait()


def _stdin(worker: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    assert worker.stdin is not None  # noqa: S101 - the process has a pipe
    return worker.stdin


def _stdout(worker: asyncio.subprocess.Process) -> asyncio.StreamReader:
    assert worker.stdout is not None  # noqa: S101 - as above
    return worker.stdout


def _worker_lost(reason: str) -> RunnerError:
    message = (
        f"a process of the load generator {reason}: measure again; if it happens again, check "
        "whether this machine kills processes, for example for lack of memory"
    )
    return load_error("worker_lost", "client", message)


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

    async def __aexit__(self, *error: object) -> None:
        await self.client.__aexit__(*error)

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
