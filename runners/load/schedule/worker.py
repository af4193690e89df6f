"""One of several processes that share a load: `python -m runners.load.schedule.worker QUEUE_FD`.

`runners.load.schedule.worker_pool` starts the process. At the end of its standard input the worker
drops its requests, asks the server to abort them, and exits.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pickle
import signal
import sys
from asyncio import IncompleteReadError
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.base import RunnerError
from runners.load.http.client import LoadClient
from runners.load.http.in_flight import InFlightRequest
from runners.load.schedule.loops import (
    Loop,
    StallDetector,
    run_watched,
    without_garbage_collection,
)

if TYPE_CHECKING:
    from asyncio import StreamReader

    from results.records import Failure
    from runners.load.http.client import ClientSettings
    from runners.load.schedule.loops import LoopReport, Plan


INDEX_BYTES = 4
ALIVE_S = 0.5
"""Real seconds between two `Alive` messages."""


class _ParentGoneError(Exception):
    """The parent process has ended."""


async def _serve(queue: int) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
    )
    order = await receive(reader)
    if not isinstance(order, Order):
        return
    detector = StallDetector()
    async with LoadClient(order.client, detector.received) as client:
        flights = [InFlightRequest(prompt, body) for prompt, body in order.requests]
        for flight in flights:
            client.prepare(flight)
        try:
            with without_garbage_collection():
                _tell(Ready())
                go = await receive(reader)
                if not isinstance(go, Go):
                    return
                work = order.plan.run(
                    Loop(client, detector),
                    flights,
                    lambda: next_index(queue),
                    start=go.start,
                    part=order.part,
                    parts=order.parts,
                )
                report = await run_watched(work, _report_alive(reader, detector))
        except RunnerError as error:
            _tell(Failed(error.failure))
        except _ParentGoneError:
            await client.abort_all()
            return
        else:
            # The parent has the bodies already.
            sent = {
                n: dataclasses.replace(flight, body=b"", request=None)
                for n, flight in enumerate(flights)
                if flight.sent
            }
            _tell(Done(report, sent))
        # The parent ends this process after it has read the message.
        await reader.read()


async def _report_alive(reader: asyncio.StreamReader, detector: StallDetector) -> None:
    """Send `Alive` messages; raise if the parent is gone."""
    gone = asyncio.ensure_future(reader.read(1))
    try:
        while True:
            await asyncio.wait((gone,), timeout=ALIVE_S)
            if gone.done():
                raise _ParentGoneError
            _tell(Alive(detector.silent_since))
    finally:
        gone.cancel()


def next_index(queue: int) -> int | None:
    """Read the next number of a file whose position all workers share; `None` at the end.

    The kernel serialises reads of one open file. So there is no lock that a killed process could
    keep.
    """
    data = os.read(queue, INDEX_BYTES)
    return int.from_bytes(data) if len(data) == INDEX_BYTES else None


def _tell(message: object) -> None:
    try:
        sys.stdout.buffer.write(encode(message))
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise _ParentGoneError from error


def main() -> None:
    """Run one worker."""
    # The parent handles interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()


_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Order:
    """Parent to worker: the worker's part of the load.

    Attributes:
        client: Settings of the worker's client.
        plan: Plan of the whole load.
        part: Index of the worker's part.
        parts: Number of parts.
        requests: Prompt id and body of every request, in the order of sending.
    """

    client: ClientSettings
    plan: Plan
    part: int
    parts: int
    requests: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """Worker to parent: all requests are encoded."""


@dataclass(frozen=True, slots=True)
class Go:
    """Parent to worker: start at this clock reading; all processes share the clock."""

    start: float


@dataclass(frozen=True, slots=True)
class Alive:
    """Worker to parent, at regular intervals; see `StallDetector.silent_since`."""

    silent_since: float


@dataclass(frozen=True, slots=True)
class Done:
    """Worker to parent: its part of the load has ended.

    Attributes:
        report: Report of the worker's loop.
        sent: The requests that the worker sent, by their index in the load, without bodies.
    """

    report: LoopReport
    sent: dict[int, InFlightRequest]


@dataclass(frozen=True, slots=True)
class Failed:
    """Worker to parent: the load cannot continue."""

    failure: Failure


def encode(message: object) -> bytes:
    """Encode a message with its length."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH_BYTES) + data


async def receive(reader: StreamReader) -> object | None:
    """Return the next message; `None` if the other process is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
        data = await reader.readexactly(length)
    except (IncompleteReadError, ConnectionError):
        return None
    return pickle.loads(data)  # type: ignore[no-any-return] # noqa: S301 - see the module
