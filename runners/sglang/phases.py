"""The phases of SGLang's start-up, read from its log.

The lines are those of 0.5.9, 0.5.17 and 0.5.23. A phase may occur twice, because 0.5.9 loads the
draft after the target's graphs. The time of such a phase is the sum of its parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST = "arguments"
"""Interpreter start, imports and argument handling, up to the first line of a scheduler."""

READY = "ready"
"""SGLang's own warm-up request was answered. This is no proof of readiness: if another server has
the port, that server answers the request (0.5.23)."""

_GRAPHS = "cuda_graph"
_BEGINS = (
    ("distributed", re.compile(r"Init (torch distributed|parallel) begin")),
    ("weights", re.compile(r"Load weight begin")),
    ("kv_cache", re.compile(r"Load weight end")),
    (_GRAPHS, re.compile(r"Capture .*(graph|begin)|Capturing batches", re.IGNORECASE)),
    ("warmup", re.compile(r"Application startup complete|Uvicorn running on")),
    (READY, re.compile(r"The server is fired up and ready to roll")),
)
_OTHER_RANK = re.compile(r"^\[[^\]]*\b(?:TP|PP|DP|EP)[1-9]\d*[^\]]*\]")


def phase_begun(line: str) -> str | None:
    """Phase that begins with this line of the log, if any.

    Lines of all ranks but the first are ignored, since ranks do not run in step.
    """
    if _OTHER_RANK.match(line):
        return None
    return next((phase for phase, pattern in _BEGINS if pattern.search(line)), None)


@dataclass(frozen=True, slots=True)
class StartTimeouts:
    """Longest time of each phase in the server's seconds, so that a hang ends.

    Attributes:
        phases: Seconds by phase.
        floor_s: Shortest timeout in real seconds, since the imports of a simulated server take real
            time at any time scale.
    """

    phases: tuple[tuple[str, float], ...] = (
        (FIRST, 300.0),
        ("distributed", 300.0),
        ("weights", 3600.0),  # a terabyte from a network disk
        ("kv_cache", 300.0),
        (_GRAPHS, 1200.0),
        ("warmup", 600.0),  # kernels are compiled at their first use
        (READY, 120.0),
    )
    floor_s: float = 30.0

    def with_states(self, states: int) -> StartTimeouts:
        """Timeouts of a server with this many settings, each with its own graphs."""
        phases = dict(self.phases)
        graphs = phases.get(_GRAPHS, 0.0)
        return replace(self, phases=tuple({**phases, _GRAPHS: graphs * max(1, states)}.items()))

    def real_seconds(self, phase: str, time_scale: float) -> float:
        """Timeout of a phase in real seconds."""
        return max(self.floor_s, dict(self.phases).get(phase, 300.0) / time_scale)


class PhaseClock:
    """Adds up the seconds of each phase."""

    def __init__(self, now: float) -> None:
        self.current = FIRST
        self._begun = now
        self._seconds: dict[str, float] = {FIRST: 0.0}

    def enter(self, phase: str, now: float) -> bool:
        """Start a phase; return whether it differs from the current one."""
        if phase == self.current:
            return False
        self._seconds[self.current] += now - self._begun
        self._seconds.setdefault(phase, 0.0)
        self.current, self._begun = phase, now
        return True

    def in_current(self, now: float) -> float:
        """Seconds since the current phase began."""
        return now - self._begun

    def finish(self, now: float) -> tuple[tuple[str, float], ...]:
        """Seconds per phase, in order of first appearance."""
        seconds = dict(self._seconds)
        seconds[self.current] += now - self._begun
        return tuple(seconds.items())


class LogFollower:
    """Reads a growing log, each line once."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open(encoding="utf-8", errors="replace", newline="\n")
        self._partial = ""

    def lines(self) -> Iterator[str]:
        """Complete lines since the last call."""
        while line := self._file.readline():
            self._partial += line
            if self._partial.endswith("\n"):
                yield self._partial.rstrip("\r\n")
                self._partial = ""

    def close(self) -> None:
        """Close the log. Idempotent."""
        self._file.close()


def log_tail(path: Path, size: int = 256 * 1024) -> str:
    """Last `size` bytes of a log; empty if the log cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - size))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
