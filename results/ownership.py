"""Which living tuner a study belongs to: one process at a time writes it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Final, Self

import psutil

# The kernel states start times in hundredths of a second since boot, and the time of boot moves a
# little when the clock is set. A pid is not used again within this span.
_SAME_START_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Owner:
    """One process of a tuner, named so that it can't be confused with a later one of its pid.

    Attributes:
        pid: Its process id.
        started: Its start time, seconds since the epoch.
        host: Name of its machine.
    """

    pid: int
    started: float
    host: str

    @classmethod
    def this_process(cls) -> Self:
        """The process that runs this."""
        return cls(os.getpid(), psutil.Process().create_time(), socket.gethostname())

    def is_same(self, other: Owner) -> bool:
        """Whether both are one process."""
        return (
            self.host == other.host
            and self.pid == other.pid
            and abs(self.started - other.started) < _SAME_START_S
        )

    def may_live(self) -> bool:
        """Whether it is alive, as far as can be known from here.

        Of a process on another machine nothing is known: it may be alive.
        """
        if self.host != socket.gethostname():
            return True
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return abs(process.create_time() - self.started) < _SAME_START_S
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True
