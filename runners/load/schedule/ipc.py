"""Messages between the processes of a load: pickled values with a length prefix.

Only a process and its own child processes exchange messages, over pipes that no other process has.
A worker runs as `__main__`, so messages are defined here: a pickle names the module of its class.
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
    from runners.load.http.in_flight import InFlightRequest
    from runners.load.schedule.loops import LoopReport, Plan

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
