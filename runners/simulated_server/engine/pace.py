"""Simulated time in real time: when a forward ends, and what is not the simulated machine's doing.

Every forward ends at an absolute deadline, so what one wake-up is late by is not added to the next.

**Turn-around.** Where a request of a closed loop ends, its client needs some real milliseconds to
send the next one. They are no part of what runs faster than life. So the next forward is held back
until the successor is there (or does not come), its prefill takes its time from then on, and the
time that this cost is a *debt* of the clock, which the decode cycles after it pay back: each is
shorter by a quarter at most until it is paid. Throughput, and the time to first token, are then
those of a client that answers at once. Clients that begin together at an idle machine are likewise
taken to come at once. Requests of an open loop (`Request.open_arrival`) come when they come:
nothing waits for them, nothing is lent.
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
"""Real seconds within which a client that is at work sends its next request."""

_PATIENCE_S = 0.02
_LEAST_PATIENCE_S = 0.01
_PATIENCE = 4.0
"""How long a forward is held back: so many times what successors took so far, within bounds."""

_TOGETHER_S = 0.004
"""Real seconds between two requests that were sent together."""
_TOGETHER_SHARE = 0.02
"""The same as a share of the prefill: of a long one it is longer."""
_GATHER_SHARE = 0.8
_LARGEST_PAYMENT = 0.25
_LARGEST_DEBT_S = 1.0
_LATE_S = 0.002
_WORTH_SAYING = 0.1
_WORTH_SAYING_S = 0.1
"""Of the real time since the flush, and real seconds: less may be a debt that is being paid."""
_SETTLED_S = 2.0
"""Real seconds of work: before that the one debt of a common start may be much of it."""


@dataclass(slots=True)
class Lateness:
    """How well the process keeps its simulated time, since the last flush.

    Attributes:
        forwards: Forwards that ended.
        late: Those that ended over 2 real milliseconds after their time.
        busy_s: Simulated seconds that they were to last.
        behind_s: Simulated seconds by which clients have been served too late in all; as a share
            of `busy_s`, what measurements since the flush may be off by.
        repaid_s: Simulated seconds by which cycles were shorter, to pay back what was lent; as a
            share of `busy_s`, what the time per output token is too short by.
    """

    forwards: int = 0
    late: int = 0
    busy_s: float = 0.0
    behind_s: float = 0.0
    repaid_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For `/server_info`."""
        return {
            "forwards": self.forwards,
            "late_forwards": self.late,
            "busy_s": self.busy_s,
            "behind_s": self.behind_s,
            "repaid_s": self.repaid_s,
        }


class Pace:
    """The clock of one engine; real times are the event loop's.

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
        """When the last forward ended, or was to."""
        return self._deadline

    def flushed(self) -> None:
        """What comes next is no turn-around: nobody was at work."""
        self._deadline = self._debt = self._slipped = self._late = 0.0
        self._owed = 0
        self.lateness = Lateness()
        self._warned = False

    def arrived(self, request: Request, now: float) -> None:
        """A request is there; `now` is when its prompt had been read, after it arrived."""
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
        """These have ended, by themselves."""
        closed = sum(1 for r in requests if r.counted and not r.open_arrival and r.finish != ABORT)
        if closed:
            self._owed += closed
            self._owed_since = now

    async def hold(self) -> None:
        """Waits for the successors of what has ended, unless none is to be expected."""
        clock = asyncio.get_running_loop().time
        if self._owed:
            # Counted from when the answers are out: those of 256 requests take a while to write.
            self._owed_since = clock()
        while self._owed:
            left = self._owed_since + self._patience - clock()
            if not self._closed_loop or left <= 0.0:
                # Once nobody came, as in a drain, nobody is waited for until somebody comes in
                # time again; what the wait cost those who run is lent to them.
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
        """Waits for who comes together with the idle machine's first request.

        Clients that start together reach it within some real milliseconds, which at ten times
        life's speed are as long as a prefill. The wait is part of the prefill's own time.

        Args:
            milliseconds: Simulated, of the first one's prefill.
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
        """The idle machine gets its first request: time goes on where that arrived.

        After a pause in which no client was at work the clock begins anew.
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
        """A prefill of these begins: it takes its time from where they arrived, on average."""
        if not requests:
            return
        times = [max(r.arrived, self._deadline) for r in requests if not r.open_arrival]
        if times:
            self._move(sum(times) / len(times))

    async def forward(self, milliseconds: float, *, repays: bool) -> str | None:
        """Lets a forward's simulated time pass; returns what is to be warned of, if anything.

        Args:
            milliseconds: Simulated.
            repays: Whether it may be shortened to pay back what was lent.
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
        # What was lent and not yet paid back delays the client as much as a late forward.
        lateness = self.lateness
        lateness.forwards += 1
        lateness.late += behind > _LATE_S
        lateness.busy_s += seconds * self.scale
        self._late = max(0.0, behind)
        behind = self._late + self._debt + self._slipped
        lateness.behind_s = behind * self.scale
        busy = lateness.busy_s / self.scale
        if behind > max(_WORTH_SAYING_S, _WORTH_SAYING * busy):
            return self._once(
                "the simulation falls behind its own clock "
                f"({lateness.behind_s:.2f} simulated seconds): what is measured now is too slow"
            )
        if busy > _SETTLED_S and lateness.repaid_s > _WORTH_SAYING * lateness.busy_s:
            return self._once(
                "clients are slow to send their next requests, and cycles are shortened for it: "
                "times per output token measured now are too short, by "
                f"{lateness.repaid_s / lateness.busy_s:.0%}"
            )
        return None

    def _once(self, warning: str) -> str | None:
        if self._warned:
            return None
        self._warned = True
        return warning
