"""Simulated time in real time: deadlines of forwards, and compensation for slow clients.

Every forward ends at an absolute deadline, so the delay of one wake-up is not added to the next.

**Turn-around.** The client of a closed loop needs some real milliseconds between an answer and its
next request. This time does not scale with the simulation. The engine therefore delays the next
forward until the next request arrives or is overdue, and starts the prefill at its arrival. The
delay is a *debt* of the clock. The following decode cycles repay the debt: each cycle is up to a
quarter shorter. Throughput and time to first token then equal those of a client that answers at
once. Clients that start together at an idle server also count as simultaneous. Requests of an open
loop (`Request.open_arrival`) get no delay and no debt.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.simulated_server.engine.request import ABORT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine.request import Request

TURNAROUND_S = 0.05
"""Real seconds within which an active client sends its next request."""

_PATIENCE_S = 0.02
_LEAST_PATIENCE_S = 0.01
_PATIENCE = 4.0
"""A forward waits this many times the measured turn-around, within the bounds."""

_TOGETHER_S = 0.004
"""Real seconds between two requests that count as sent together."""
_TOGETHER_SHARE = 0.02
"""The same time as a share of the prefill, for long prefills."""
_GATHER_SHARE = 0.8
_LARGEST_PAYMENT = 0.25
_LARGEST_DEBT_S = 1.0
_LATE_S = 0.002
_WARN_SHARE = 0.1
_WARN_S = 0.1
"""Share of the real time since the flush, and real seconds: smaller debts may be repaid soon."""
_SETTLED_S = 2.0
"""Real seconds of work; before that, the debt of a common start may be a large share."""


@dataclass(slots=True)
class Lateness:
    """Precision of the simulated time since the last flush.

    Attributes:
        forwards: Forwards that ended.
        late: Forwards that ended over 2 real milliseconds after their deadlines.
        busy_s: Sum of the planned times of the forwards, in simulated seconds.
        behind_s: Total delay of the clients in simulated seconds. `behind_s / busy_s` is the
            possible error of measurements since the flush.
        repaid_s: Simulated seconds by which cycles were shortened to repay debts.
            `repaid_s / busy_s` is the relative error of the time per output token.
    """

    forwards: int = 0
    late: int = 0
    busy_s: float = 0.0
    behind_s: float = 0.0
    repaid_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "forwards": self.forwards,
            "late_forwards": self.late,
            "busy_s": self.busy_s,
            "behind_s": self.behind_s,
            "repaid_s": self.repaid_s,
        }


class Pace:
    """Clock of one engine; real times are times of the event loop.

    Args:
        scale: Simulated seconds per real second.
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.lateness = Lateness()
        self._deadline = 0.0
        self._debt = 0.0
        self._owed = 0
        self._owed_since = 0.0
        self._closed_loop = True
        self._patience = _PATIENCE_S
        self._slipped = 0.0
        self._late = 0.0
        self._came = asyncio.Event()
        self._warned = False

    @property
    def deadline(self) -> float:
        return self._deadline

    def flushed(self) -> None:
        """Reset the clock: the next request is not a turn-around."""
        self._deadline = self._debt = self._slipped = self._late = 0.0
        self._owed = 0
        self.lateness = Lateness()
        self._warned = False

    def arrived(self, request: Request, now: float) -> None:
        """Record an arrival; `now` is the time after its prompt was read."""
        if not request.counted:
            return
        if request.open_arrival:
            self._owed = 0
            self._closed_loop = False
            self._came.set()
            return
        took = request.arrived - self._owed_since
        in_time = took < TURNAROUND_S
        if in_time:
            self._closed_loop = True
            patience = max(_LEAST_PATIENCE_S, _PATIENCE * took, 0.95 * self._patience)
            self._patience = min(TURNAROUND_S, patience)
        if self._owed:
            self._owed = self._owed - 1 if in_time else 0
            self._owed_since = now
        self._came.set()

    def ended(self, requests: Sequence[Request], now: float) -> None:
        closed = sum(1 for r in requests if r.counted and not r.open_arrival and r.finish != ABORT)
        if closed:
            self._owed += closed
            self._owed_since = now

    async def hold(self) -> None:
        """Wait for the next requests of the clients whose requests have ended."""
        clock = asyncio.get_running_loop().time
        if self._owed:
            # The wait begins after the answers are written: 256 answers take a while.
            self._owed_since = clock()
        while self._owed:
            left = self._owed_since + self._patience - clock()
            if not self._closed_loop or left <= 0.0:
                # No request came, for example in a drain: do not wait again until a request
                # comes in time. The time of this wait is a debt to the running requests.
                if self._closed_loop:
                    self._closed_loop = False
                    self._move(max(self._deadline, clock()))
                self._owed = 0
                return
            self._came.clear()
            try:
                async with asyncio.timeout(left):
                    await self._came.wait()
            except TimeoutError:
                continue

    async def gather(self, milliseconds: float) -> None:
        """Wait for requests that arrive together with the first request of an idle engine.

        Clients that start together send within some real milliseconds. At a time scale of 10 that
        is as long as a prefill. The wait is part of the prefill's time.

        Args:
            milliseconds: Simulated time of the first request's prefill.
        """
        loop = asyncio.get_running_loop()
        prefill_s = milliseconds / 1000.0 / self.scale
        end = self._deadline + _GATHER_SHARE * prefill_s
        together = max(_TOGETHER_S, _TOGETHER_SHARE * prefill_s)
        while (left := min(together, end - loop.time())) > 0.0:
            self._came.clear()
            try:
                async with asyncio.timeout(left):
                    await self._came.wait()
            except TimeoutError:
                return

    def begin(self, first: Request) -> None:
        """Continue the time of an idle engine at the arrival of its first request.

        After a pause without an active client, the clock starts again without debt.
        """
        gap = first.arrived - self._deadline
        if gap <= 0.0:
            return
        if first.open_arrival or gap >= TURNAROUND_S:
            self._slipped += self._debt + self._late
            self._debt = 0.0
        else:
            self._lend(gap * max(0.0, 1.0 - 1.0 / self.scale))
        self._deadline = first.arrived

    def begin_prefill(self, requests: Sequence[Request]) -> None:
        """Begin a prefill; its time starts at the mean arrival of its requests."""
        if not requests:
            return
        times = [max(r.arrived, self._deadline) for r in requests if not r.open_arrival]
        if times:
            self._move(sum(times) / len(times))

    async def forward(self, milliseconds: float, *, repays: bool) -> str | None:
        """Wait for the simulated time of a forward; return a warning, if any.

        Args:
            milliseconds: Simulated time.
            repays: Whether the forward may be shorter to repay a debt.
        """
        seconds = milliseconds / 1000.0 / self.scale
        paid = min(self._debt, _LARGEST_PAYMENT * seconds) if repays else 0.0
        self._debt -= paid
        self.lateness.repaid_s += paid * self.scale
        self._deadline += seconds - paid
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._deadline - loop.time()))
        return self._look(seconds, loop.time() - self._deadline)

    def _move(self, until: float) -> None:
        self._lend(until - self._deadline)
        self._deadline = until

    def _lend(self, seconds: float) -> None:
        self._debt += seconds
        self._slipped += max(0.0, self._debt - _LARGEST_DEBT_S)
        self._debt = min(_LARGEST_DEBT_S, self._debt)

    def _look(self, seconds: float, behind: float) -> str | None:
        # An open debt delays the client as much as a late forward.
        lateness = self.lateness
        lateness.forwards += 1
        lateness.late += behind > _LATE_S
        lateness.busy_s += seconds * self.scale
        self._late = max(0.0, behind)
        behind = self._late + self._debt + self._slipped
        lateness.behind_s = behind * self.scale
        busy = lateness.busy_s / self.scale
        if behind > max(_WARN_S, _WARN_SHARE * busy):
            return self._once(
                "the simulation falls behind its own clock "
                f"({lateness.behind_s:.2f} simulated seconds): measurements are too slow"
            )
        if busy > _SETTLED_S and lateness.repaid_s > _WARN_SHARE * lateness.busy_s:
            return self._once(
                "clients send their next requests late, and shorter cycles compensate for it: "
                "measured times per output token are too short by "
                f"{lateness.repaid_s / lateness.busy_s:.0%}"
            )
        return None

    def _once(self, warning: str) -> str | None:
        if self._warned:
            return None
        self._warned = True
        return warning
