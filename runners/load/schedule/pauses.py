"""Detect when a client process did not run: stopped, short of CPU, or busy.

A process that does not run sees an answer end too late, sends the next request too late, and reads
its clock too late. So every figure of the window can be wrong.

The event loop of each client process has a timer at random times, the beat. A late beat shows a
pause. Because the times are random, the beats are a fair sample: on average an event in the window
is noticed as late as a beat. So the monitor need not see every short pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from runners.load.http.client import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BEAT_S = 0.04
"""Mean real seconds between two beats: 25 beats a second use less than 0.5 % of a core."""

_SAMPLE = 3
"""Fewest late beats that count as a sample of the window."""

_TOLERANCE_S = 0.0015
"""Largest delay of a beat that counts as on time: asyncio rounds timers up to milliseconds."""

_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_CPU_STATS = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))


class Pause(NamedTuple):
    """One late beat; times are clock readings.

    Attributes:
        due: Scheduled time of the beat.
        ran: Actual time of the beat.
        cpu_s: CPU seconds of the event loop's thread since the previous beat.
    """

    due: float
    ran: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class ClientPauses:
    """Pauses of one or several client processes in a window.

    Attributes:
        pauses: Late beats.
        seconds: Real seconds of the window, times the number of processes.
        opened: Start of the window; earlier pauses are in the ramp.
        queued_s: Seconds in which the process waited for a CPU.
        throttled_s: Seconds in which the container's CPU limit stopped the process.
    """

    pauses: tuple[Pause, ...] = ()
    seconds: float = 0.0
    opened: float = -math.inf
    queued_s: float = 0.0
    throttled_s: float = 0.0

    @classmethod
    def of(
        cls, parts: Iterable[ClientPauses], begun: float, opened: float, closed: float
    ) -> ClientPauses:
        """Combine the pauses of several processes in one window.

        Pauses in the ramp count too: lanes that a pause delayed together stay in lock-step.

        Args:
            parts: Pauses of each process.
            begun: Time of the load's first request.
            opened: Start of the window.
            closed: End of the window.
        """
        parts = tuple(parts)
        return cls(
            tuple(
                Pause(max(pause.due, begun), min(pause.ran, closed), pause.cpu_s)
                for part in parts
                for pause in part.pauses
                if pause.due < closed and pause.ran > begun
            ),
            len(parts) * (closed - opened),
            opened,
            sum(part.queued_s for part in parts),
            sum(part.throttled_s for part in parts),
        )

    def paused_share(self) -> float:
        """Return the share of the window in which the client did not run."""
        return self._per_second(weight for _, weight in self._late(self._of_window()))

    def mean_late_s(self) -> float:
        """Return the mean delay with which the client noticed events, in real seconds."""
        return self._per_second(weight * each for each, weight in self._late(self._of_window()))

    def lost_share(self, request_s: float) -> float:
        """Return an upper estimate of the share of a lane's time that was lost to pauses.

        A pause delays an answer that ends in it, and the lane's next request. Whether an answer
        ends in the pause is chance, so two standard deviations are added to the mean. All lanes
        count as one, because answers may end together.

        Args:
            request_s: Real seconds per request.
        """
        if not self.pauses or request_s <= 0 or self.seconds <= 0:
            return 0.0
        # At most one answer of a lane ends in a pause, within the first `request_s`.
        late = list(self._late(self.pauses, request_s))
        mean = sum(weight * each for each, weight in late) / request_s
        variance = sum(weight * each**2 for each, weight in late) / request_s
        return (mean + 2 * math.sqrt(variance)) / self.seconds

    def _of_window(self) -> list[Pause]:
        """Pauses inside the window; pauses in the ramp change no latency."""
        return [
            pause._replace(due=max(pause.due, self.opened))
            for pause in self.pauses
            if pause.ran > self.opened
        ]

    def _late(
        self, pauses: Sequence[Pause], longest_s: float = math.inf
    ) -> Iterator[tuple[float, float]]:
        """Yield the delay of each beat, and the seconds of the window that it represents.

        Beats that were due within a pause count too. If there are too few late beats for a sample,
        each represents only the observed part of its pause.

        Args:
            pauses: Late beats.
            longest_s: Skip beats that were due later than this after the start of a pause.
        """
        few = len(pauses) < _SAMPLE
        for due, ran, _ in pauses:
            at = due
            while at < min(ran, due + longest_s):
                yield ran - at, min(BEAT_S, ran - at) if few else BEAT_S
                at += BEAT_S

    def _per_second(self, values: Iterable[float]) -> float:
        return sum(values) / self.seconds if self.seconds > 0 else 0.0

    def cause(self) -> str:
        """Describe why the client did not run, with the remedy."""
        paused_s = sum(pause.ran - pause.due for pause in self.pauses)
        # `cpu_s` covers the time since the previous beat, which includes one normal interval.
        own_s = sum(
            min(max(0.0, pause.cpu_s - BEAT_S), pause.ran - pause.due) for pause in self.pauses
        )
        if 2 * self.throttled_s > paused_s:
            return "the container's CPU limit stopped the client: raise the limit"
        if 2 * own_s > paused_s:
            return "the client itself was busy: use more client processes"
        if 2 * self.queued_s > paused_s:
            return "other processes used the CPU: stop them, or give the client a core"
        return "the process was stopped, or the machine was suspended"


class PauseMonitor(contextlib.AbstractContextManager["PauseMonitor"]):
    """Run the beat in the current event loop inside a `with` block."""

    def __init__(self) -> None:
        self._pauses: list[Pause] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._cpu = 0.0
        self._begun = (0.0, 0.0)

    def __enter__(self) -> Self:
        self._begun = (_queued_s(), _throttled_s())
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def report(self) -> ClientPauses:
        """Return the pauses so far."""
        queued, throttled = self._begun
        return ClientPauses(
            tuple(self._pauses),
            queued_s=_queued_s() - queued,
            throttled_s=_throttled_s() - throttled,
        )

    def _wait(self) -> None:
        self._cpu = time.thread_time()
        delay = BEAT_S * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        self._due = clock() + delay
        self._timer = asyncio.get_running_loop().call_later(delay, self._beat)

    def _beat(self) -> None:
        now = clock()
        if now - self._due > _TOLERANCE_S:
            self._pauses.append(Pause(self._due, now, time.thread_time() - self._cpu))
        self._wait()


def _queued_s() -> float:
    """Seconds that this thread has waited in the run queue; 0 if Linux does not report them."""
    try:
        with _SCHEDSTAT.open("rb", buffering=0) as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _throttled_s() -> float:
    """Seconds that this container's CPU limit has stopped its processes; 0 if unreadable."""
    for path in _CPU_STATS:
        with contextlib.suppress(OSError, ValueError):
            stat = dict(line.split() for line in path.read_text().splitlines())
            return (
                int(stat.get("throttled_usec", 0)) / 1e6 + int(stat.get("throttled_time", 0)) / 1e9
            )
    return 0.0
