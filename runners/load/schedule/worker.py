"""One of several processes that share a load: `python -m runners.load.schedule.worker QUEUE_FD`.

Started by `runners.load.schedule.processes`. When its standard input ends, it drops its requests,
asks the server to forget them, and exits.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys

from runners.base import RunnerError
from runners.load.http.client import LoadClient
from runners.load.schedule.ipc import Alive, Done, Failed, Go, Order, Ready, encode, receive
from runners.load.schedule.loops import Loop, Pulse, no_collection, watched
from runners.load.window.in_flight import InFlightRequest

INDEX_BYTES = 4
ALIVE_S = 0.5
"""Real seconds between two signs of life."""


class _ParentGoneError(Exception):
    """Nobody is there any more to work for."""


async def _serve(queue: int) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
    )
    order = await receive(reader)
    if not isinstance(order, Order):
        return
    pulse = Pulse()
    async with LoadClient(order.client, pulse.heard) as client:
        flights = [InFlightRequest(prompt, body) for prompt, body in order.requests]
        for flight in flights:
            client.prepare(flight)
        try:
            with no_collection():
                _say(Ready())
                go = await receive(reader)
                if not isinstance(go, Go):
                    return
                work = order.plan.run(
                    Loop(client, pulse),
                    flights,
                    lambda: next_index(queue),
                    start=go.start,
                    part=order.part,
                    parts=order.parts,
                )
                report = await watched(work, _attend(reader, pulse))
        except RunnerError as error:
            _say(Failed(error.failure))
        except _ParentGoneError:
            await client.abort_all()
            return
        else:
            # What was sent is known to the parent; what became of it is not.
            flown = {
                n: dataclasses.replace(flight, body=b"", request=None)
                for n, flight in enumerate(flights)
                if flight.sent
            }
            _say(Done(report, flown))
        # The parent ends this process once it has read that.
        await reader.read()


async def _attend(reader: asyncio.StreamReader, pulse: Pulse) -> None:
    """Says that it lives, and notices when nobody listens."""
    gone = asyncio.ensure_future(reader.read(1))
    try:
        while True:
            await asyncio.wait((gone,), timeout=ALIVE_S)
            if gone.done():
                raise _ParentGoneError
            _say(Alive(pulse.silent_since))
    finally:
        gone.cancel()


def next_index(queue: int) -> int | None:
    """Takes the next number of a file whose position all workers share; `None` at its end.

    The kernel serialises reads of one open file, so that no lock is held by a process that may be
    killed.
    """
    data = os.read(queue, INDEX_BYTES)
    return int.from_bytes(data) if len(data) == INDEX_BYTES else None


def _say(value: object) -> None:
    try:
        sys.stdout.buffer.write(encode(value))
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise _ParentGoneError from error


def main() -> None:
    """Runs one worker."""
    # The parent decides what an interrupt means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
