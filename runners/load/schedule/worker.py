"""One of several processes that share a load: `python -m runners.load.schedule.worker QUEUE_FD`.

`runners.load.schedule.worker_pool` starts the process. At the end of its standard input the worker
drops its requests, asks the server to abort them, and exits.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys

from runners.base import RunnerError
from runners.load.http.client import LoadClient
from runners.load.http.in_flight import InFlightRequest
from runners.load.schedule.ipc import Alive, Done, Failed, Go, Order, Ready, encode, receive
from runners.load.schedule.loops import (
    Loop,
    StallDetector,
    run_watched,
    without_garbage_collection,
)

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
