"""What the load's processes say to each other: pickled values behind their length.

Only between a process and the ones that it started itself, over pipes that nobody else holds.
"""

from __future__ import annotations

import pickle
from asyncio import IncompleteReadError
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import StreamReader

    from results.records import Failure
    from runners.load.http.client import ClientSettings
    from runners.load.schedule.loops import LoopReport
    from runners.load.schedule.plan import Plan
    from runners.load.window.in_flight import InFlightRequest

_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Order:
    """Parent to worker: what it is to do.

    Attributes:
        client: How it speaks to the server.
        plan: The whole load.
        part: Its part of it.
        parts: How many parts there are.
        requests: Prompt and body of every request, in the order of sending.
    """

    client: ClientSettings
    plan: Plan
    part: int
    parts: int
    requests: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """Worker to parent: everything is prepared."""


@dataclass(frozen=True, slots=True)
class Go:
    """Parent to worker: begin.

    Attributes:
        start: The clock's reading at the start; it is one clock for all processes.
    """

    start: float


@dataclass(frozen=True, slots=True)
class Alive:
    """Worker to parent, every now and then.

    Attributes:
        silent_since: See `runners.load.schedule.loops.Pulse`.
    """

    silent_since: float


@dataclass(frozen=True, slots=True)
class Done:
    """Worker to parent: its part is through.

    Attributes:
        report: Of its loop.
        flown: The requests that it sent, by their place in the load, without their bodies.
    """

    report: LoopReport
    flown: dict[int, InFlightRequest]


@dataclass(frozen=True, slots=True)
class Failed:
    """Worker to parent: the load cannot go on."""

    failure: Failure


def encode(value: object) -> bytes:
    """A frame."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH_BYTES) + data


async def receive(reader: StreamReader) -> object | None:
    """The next frame; `None` where the other side is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
        data = await reader.readexactly(length)
    except (IncompleteReadError, ConnectionError):
        return None
    return pickle.loads(data)  # type: ignore[no-any-return] # noqa: S301 - see above
