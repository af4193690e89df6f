"""The plan of a load: when each of its requests, or each of its lanes, begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.load.schedule.loops import Send

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runners.load.schedule.arrivals import ArrivalProcess
    from runners.load.schedule.loops import Loop, LoopReport
    from runners.load.window.in_flight import InFlightRequest

_LARGEST_RAMP = 0.25
"""Share of an open loop's requests that its ramp may take."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a load is sent, by one process or by several that begin at one instant.

    Attributes:
        offsets: Real seconds from the start: of the first request of each lane (closed loop), or
            of every request (open loop).
        is_open: Whether it is an open loop.
        ramp: Requests that bring the load up. In a closed loop they are the first request of each
            lane, with an answer cut short (`ramp_lengths`), and belong to no sample; in an open
            loop they are those sent before the window opens.
    """

    offsets: tuple[float, ...]
    is_open: bool = False
    ramp: int = 0

    async def run(
        self,
        loop: Loop,
        flights: Sequence[InFlightRequest],
        more: Callable[[], int | None],
        *,
        start: float,
        part: int = 0,
        parts: int = 1,
    ) -> LoopReport:
        """Runs one part of the plan.

        Args:
            loop: Sends.
            flights: All flights of the load, whoever sends them.
            more: The next flight of a closed loop; `None` when there is none.
            start: The clock's reading at the start.
            part: Which part, from 0.
            parts: How many there are; requests and lanes are dealt out to them one by one.

        Raises:
            RunnerError: The server is gone.
        """
        sends = [Send(index, start + offset) for index, offset in enumerate(self.offsets)]
        mine = sends[part::parts]
        if self.is_open:
            return await loop.open(flights, mine)
        return await loop.closed(flights, mine, more)


def closed_plan(lanes: int, *, ramp: bool = False) -> Plan:
    """Plan a closed loop whose lanes all start at once.

    Args:
        lanes: Requests in flight.
        ramp: Whether each lane begins with a request of the ramp.
    """
    return Plan((0.0,) * lanes, ramp=lanes if ramp else 0)


def open_plan(arrivals: ArrivalProcess, ramp_s: float | None, time_scale: float) -> Plan:
    """An open loop; of a stationary process the first arrivals are its ramp.

    They meet an empty server. The ramp takes no more than a quarter of the requests.

    Args:
        arrivals: In the server's own time.
        ramp_s: Real seconds of the ramp: as long as a request takes. `None` plans no ramp.
        time_scale: Simulated seconds per real second.
    """
    offsets = tuple(time / time_scale for time in arrivals.times)
    ramp = 0
    if arrivals.stationary and ramp_s is not None:
        before = sum(offset < ramp_s for offset in offsets)
        ramp = min(before, int(_LARGEST_RAMP * len(offsets)))
    return Plan(offsets, is_open=True, ramp=ramp)
