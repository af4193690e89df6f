"""The server's one clock: the event loop's, with timers that are good to some ten microseconds.

asyncio's default selector rounds every wait up to a whole millisecond, which is as long as a
decode cycle when the simulation runs ten times faster than life. And wall-clock times are the
loop's, moved to the epoch once: two clocks read one after the other differ by whatever the process
was kept from running between the readings, and at a scale of 100 a fifth of a millisecond is 20.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selectors import SelectorKey

_EPOCH = time.time() - time.monotonic()


def wall_time(loop_time: float | None = None) -> float:
    """Seconds since the epoch, at a reading of `loop.time()` or now."""
    return _EPOCH + (time.monotonic() if loop_time is None else loop_time)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Makes the loop; for `asyncio.Runner(loop_factory=...)`."""
    return asyncio.SelectorEventLoop(_selector())


if sys.platform == "linux":

    class _PreciseSelector(selectors.EpollSelector):
        """Waits with `select` on the epoll descriptor alone: microseconds, any number of files."""

        def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
            if timeout is not None and timeout > 0:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)

    def _selector() -> selectors.BaseSelector:
        return _PreciseSelector()

else:

    def _selector() -> selectors.BaseSelector:
        return selectors.SelectSelector()
