"""What the load's processes say to each other: pickled values behind their length.

Only between a process and the ones that it started itself, over pipes that nobody else holds.
"""

from __future__ import annotations

import pickle
from array import array  # noqa: TC003 - unpickled as such
from asyncio import IncompleteReadError
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import StreamReader

    from results.records import Failure
    from runners.load.answer import Answer
    from runners.load.endpoint import Endpoint
    from runners.load.flight import Flight
    from runners.load.loops import LoopReport
    from runners.load.plan import Plan

_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a `LoadClient` is built from.

    Attributes:
        base_url: `http://host:port`.
        connections: Requests that may be in flight at once.
        request_timeout_s: Real seconds that one request may take in all.
        api_key: Sent as bearer token where given.
        endpoint: What the server speaks.
        headers: Further headers, as pairs.
    """

    base_url: str
    connections: int
    request_timeout_s: float
    api_key: str | None
    endpoint: Endpoint
    headers: tuple[tuple[str, str], ...] = ()


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
        silent_since: See `runners.load.loops.Pulse`.
    """

    silent_since: float


@dataclass(frozen=True, slots=True)
class Flown:
    """What became of one request; see `Flight`."""

    index: int
    due: float
    sent: float
    chunk_times: array[float]
    chunk_tokens: array[int]
    answer: Answer | None
    error: str | None
    timed_out: bool

    @classmethod
    def of(cls, index: int, flight: Flight) -> Flown:
        """Of a request that has ended."""
        return cls(
            index,
            flight.due,
            flight.sent,
            flight.chunk_times,
            flight.chunk_tokens,
            flight.answer,
            flight.error,
            flight.timed_out,
        )

    def onto(self, flight: Flight) -> None:
        """Writes it onto the parent's own flight."""
        flight.due = self.due
        flight.sent = self.sent
        flight.chunk_times = self.chunk_times
        flight.chunk_tokens = self.chunk_tokens
        flight.answer = self.answer
        flight.error = self.error
        flight.timed_out = self.timed_out


@dataclass(frozen=True, slots=True)
class Done:
    """Worker to parent: its part is through.

    Attributes:
        report: Of its loop.
        flown: Its requests.
    """

    report: LoopReport
    flown: tuple[Flown, ...]


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
