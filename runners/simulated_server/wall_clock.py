"""The server's one clock: wall-clock times are the event loop's, moved to the epoch once.

Two clocks read one after the other differ by whatever the process was kept from running between
the readings, and at a time scale of 100 a fifth of a millisecond is 20.
"""

import time

_EPOCH = time.time() - time.monotonic()


def wall_time(loop_time: float | None = None) -> float:
    """Seconds since the epoch, at a reading of `loop.time()` or now."""
    return _EPOCH + (time.monotonic() if loop_time is None else loop_time)
