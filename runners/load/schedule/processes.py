"""Several processes for one load, where one core is not enough to read its streams.

A client that is short of CPU reads late, and what it reads late it reports as a slow server.
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

from results.records import Failure
from runners.base import RunnerError
from runners.load.http.client import clock
from runners.load.schedule.ipc import Alive, Done, Failed, Go, Order, Ready, encode, receive
from runners.load.schedule.loops import stall, together, watched
from runners.load.schedule.worker import ALIVE_S, INDEX_BYTES

if TYPE_CHECKING:
    from types import TracebackType

    from runners.load.http.client import ClientSettings
    from runners.load.schedule.loops import LoopReport
    from runners.load.schedule.plan import Plan
    from runners.load.window.in_flight import InFlightRequest

_ENOUGH = 0.6
"""Share of a core from which on one process is not enough: bursts come on top of the mean."""
_COMFORTABLE = 0.4
"""Share of a core that each of several is to have."""
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0
_LEAD_S = 0.05
"""From the word to the start, so that all have heard it."""


def processes_for(cpu_share: float, processes: int = 1) -> int:
    """How many processes a load should have; as many as there are cores at most.

    Args:
        cpu_share: CPU per second of the busiest process, as it was seen.
        processes: With how many processes it was seen.
    """
    if cpu_share <= _ENOUGH:
        return processes
    wanted = math.ceil(processes * cpu_share / _COMFORTABLE)
    return max(processes, min(wanted, _cores()))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew:
    """Worker processes for one load; an async context manager, bound to one event loop.

    However it is left, no worker lives on: also where this process is killed, for they read from
    a pipe that ends with it.

    Args:
        processes: How many.
        client: How they speak to the server.
        plan: The load.
        flights: Its requests; each is replaced by what became of it.
    """

    def __init__(
        self, processes: int, client: ClientSettings, plan: Plan, flights: list[InFlightRequest]
    ) -> None:
        self._client = client
        self._plan = plan
        self._flights = flights
        self._parts = min(processes, len(plan.offsets))
        self._workers: list[asyncio.subprocess.Process] = []
        self._queue = tempfile.TemporaryFile()  # noqa: SIM115 - closed when left
        self._heard: dict[int, float] = {}
        self._latest = -math.inf

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._start()
        except TimeoutError:
            await self._end()
            raise _lost("did not start in time") from None
        except OSError as error:
            await self._end()
            raise _lost(f"cannot be started ({error})") from error
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end()

    async def run(self, stall_timeout_s: float) -> list[LoopReport]:
        """Runs the load to its end.

        Raises:
            RunnerError: The server is gone or hangs, or a worker was lost.
        """
        go = encode(Go(clock() + _LEAD_S))
        for worker in self._workers:
            _stdin(worker).write(go)
        everybody = together([self._finish(part) for part in range(self._parts)])
        return await watched(everybody, self._watch(stall_timeout_s))

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
                raise _lost("died before the load began")

    async def _spawn(self) -> asyncio.subprocess.Process:
        # Not from the current folder, whatever lies there, but from where this package is.
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
            # A Ctrl-C at the terminal is the parent's to handle.
            start_new_session=True,
        )

    async def _finish(self, part: int) -> LoopReport:
        while True:
            said = await receive(_stdout(self._workers[part]))
            if isinstance(said, Alive):
                self._heard[part] = said.silent_since
                if said.silent_since < math.inf:
                    self._latest = max(self._latest, said.silent_since)
            elif isinstance(said, Done):
                self._heard[part] = math.inf
                for index, flown in said.flown.items():
                    self._flights[index] = flown
                return said.report
            elif isinstance(said, Failed):
                raise RunnerError(said.failure)
            else:
                raise _lost("died under load")

    async def _watch(self, stall_timeout_s: float) -> None:
        # What a worker says of itself is up to `ALIVE_S` old.
        limit = stall_timeout_s + ALIVE_S
        while True:
            waits = any(since < math.inf for since in self._heard.values())
            silence = clock() - self._latest if waits else 0.0
            if silence >= limit:
                raise stall(stall_timeout_s)
            await asyncio.sleep(min(limit, limit - silence))

    async def _end(self) -> None:
        for worker in self._workers:
            _stdin(worker).close()
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await asyncio.gather(*(_emptied(worker) for worker in self._workers))
        except TimeoutError:
            pass
        finally:
            self._queue.close()
            for worker in self._workers:
                with contextlib.suppress(ProcessLookupError):
                    worker.kill()
            for worker in self._workers:
                await worker.wait()


async def _emptied(worker: asyncio.subprocess.Process) -> None:
    """Waits for its end; what it still says is read, so that it cannot be stuck saying it."""
    while await _stdout(worker).read(1 << 16):
        pass
    await worker.wait()


def _stdin(worker: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    assert worker.stdin is not None  # noqa: S101 - it was started with a pipe
    return worker.stdin


def _stdout(worker: asyncio.subprocess.Process) -> asyncio.StreamReader:
    assert worker.stdout is not None  # noqa: S101 - as above
    return worker.stdout


def _lost(what: str) -> RunnerError:
    message = f"a process of the load generator {what}: measure again; if it happens again, look "
    return RunnerError(
        Failure("worker_lost", "load", "client", message + "for what ends processes here (memory?)")
    )
