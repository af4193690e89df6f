"""How servers end: the exit statuses and last words that both servers must have.

The real one is held to them by `tests/sglang/test_live_end.py`, `test_port_taken.py`
and `test_failed_starts.py`, which starts again what is recorded in `tests/data/failed`.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """One way to end.

    Attributes:
        status: As `Popen` has it: negative for a signal.
        says: Patterns that the log has then.
        never: One that it has not.
    """

    status: int
    says: tuple[str, ...] = ()
    never: str | None = None

    def breaches(self, status: int, log: str) -> list[str]:
        """What is different, in words."""
        found = [] if status == self.status else [f"exit status {status}, not {self.status}"]
        found += [f"never says {one!r}" for one in self.says if not re.search(one, log)]
        if self.never is not None and re.search(self.never, log):
            found.append(f"says {self.never!r}")
        return found


TOLD_TO_END = End(0, (r"SIGTERM received", r"Gracefully exiting"), never="crashed")
"""By SIGTERM, whether idle or not: what it has begun to answer it answers."""

SCHEDULER_KILLED = End(
    -signal.SIGKILL,
    (r"Subprocess scheduler_0 \(pid=\d+\) crashed with exit code -9", r"SIGQUIT received"),
)
"""137 to a shell: it kills its own process group, which says nothing of memory."""

PORT_TAKEN = End(3, (r"error while attempting to bind on address", r"fired up and ready to roll"))
"""It binds last, and its warm-up has reached whoever holds the port."""

UNKNOWN_FLAG = End(2, (r"sglang serve: error: unrecognized arguments: --nosuch-flag",))
REFUSED_FLAGS = End(
    1, (r"ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on",)
)
SCHEDULER_DIES_STARTING = End(-signal.SIGKILL, (r"Received sigquit from a child process",))
