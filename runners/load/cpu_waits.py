"""Reads from Linux how long the calling thread was ready to run and had no CPU."""

from __future__ import annotations

import contextlib
from pathlib import Path

_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_CPU_STATS = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))


def queued_s() -> float:
    """Seconds that this thread waited in the run queue so far; 0 where Linux does not say."""
    try:
        with _SCHEDSTAT.open("rb", buffering=0) as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def throttled_s() -> float:
    """Seconds that the CPU limit of this container stopped it so far; 0 where it cannot be read."""
    for path in _CPU_STATS:
        with contextlib.suppress(OSError, ValueError):
            stat = dict(line.split() for line in path.read_text().splitlines())
            return (
                int(stat.get("throttled_usec", 0)) / 1e6 + int(stat.get("throttled_time", 0)) / 1e9
            )
    return 0.0
