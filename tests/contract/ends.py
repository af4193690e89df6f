"""Exit statuses and last log lines that both servers must have.

`tests/sglang/test_live_end.py`, `test_port_taken.py` and `test_failed_starts.py` check the real
server.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """End of a server.

    Attributes:
        status: Exit status as in `Popen`: negative for a signal.
        says: Patterns that the log must have.
        never: Pattern that the log must not have.
    """

    status: int
    says: tuple[str, ...] = ()
    never: str | None = None

    def breaches(self, status: int, log: str) -> list[str]:
        """Describe the differences."""
        found = [] if status == self.status else [f"exit status {status}, not {self.status}"]
        found += [f"never says {one!r}" for one in self.says if not re.search(one, log)]
        if self.never is not None and re.search(self.never, log):
            found.append(f"says {self.never!r}")
        return found


SIGTERM_RECEIVED = End(0, (r"SIGTERM received", r"Gracefully exiting"), never="crashed")
"""SIGTERM, idle or busy: the server completes its requests first."""

SCHEDULER_KILLED = End(
    -signal.SIGKILL,
    (r"Subprocess scheduler_0 \(pid=\d+\) crashed with exit code -9", r"SIGQUIT received"),
)
"""137 in a shell: the server kills its own process group; this is not an out-of-memory kill."""

PORT_TAKEN = End(3, (r"error while attempting to bind on address", r"fired up and ready to roll"))
"""The server binds last; its warm-up request reaches the server that holds the port."""

UNKNOWN_FLAG = End(2, (r"sglang serve: error: unrecognized arguments: --nosuch-flag",))
REFUSED_FLAGS = End(
    1, (r"ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on",)
)
SCHEDULER_DIES_STARTING = End(-signal.SIGKILL, (r"Received sigquit from a child process",))
