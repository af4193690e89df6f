"""The server's clock: the event loop's, with timers that are precise to about 10 microseconds.

asyncio's default selector rounds every wait up to a millisecond. That is as long as a decode cycle
at a time scale of 10. Wall-clock times are the loop's times plus a fixed offset: two separate clock
readings differ by any pause of the process between them, and the time scale multiplies that error.
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
    """Return seconds since the epoch for a reading of `loop.time()`, or now."""
    return _EPOCH + (time.monotonic() if loop_time is None else loop_time)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop for `asyncio.Runner(loop_factory=...)`."""
    return asyncio.SelectorEventLoop(_selector())


if sys.platform == "linux":

    class _PreciseSelector(selectors.EpollSelector):
        """Waits with `select` on the epoll descriptor: in microseconds, for any number of files."""

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
