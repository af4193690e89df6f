"""Ownership of a study: one tuner process at a time writes it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Final, Self

import psutil

# The kernel reports start times in hundredths of a second since boot, and the boot time changes a
# little when the clock is set. A pid is not reused within this time.
_SAME_START_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Owner:
    """A tuner process, identified so that a reused pid is not confused with it.

    Attributes:
        pid: Process id.
        started: Start time, seconds since the epoch.
        host: Name of its machine.
    """

    pid: int
    started: float
    host: str

    @classmethod
    def this_process(cls) -> Self:
        """The current process."""
        return cls(os.getpid(), psutil.Process().create_time(), socket.gethostname())

    def is_same(self, other: Owner) -> bool:
        """Whether both are the same process."""
        return (
            self.host == other.host
            and self.pid == other.pid
            and abs(self.started - other.started) < _SAME_START_S
        )

    def may_live(self) -> bool:
        """Whether the process may be alive.

        A process on another machine always may.
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
