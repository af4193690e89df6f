"""Measure the stages of one launch from its log, and its processes."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from runners.sglang.server_log import LogFollower

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

STAGES = {
    "launcher": "the launcher: interpreter, imports, arguments; until it starts its scheduler",
    "scheduler": "the scheduler: interpreter and imports, the detokenizer's beside them",
    "distributed": "process groups, NCCL's communicators",
    "model_classes": "every model's class is imported, to know them by name",
    "weights": "weights, target and draft",
    "kv_cache": "KV cache, attention backend",
    "graphs": "CUDA graphs, with what is compiled for them",
    "http": "from the scheduler's last word to an HTTP server",
    "warm_up": "SGLang's own warm-up request",
    "first_token": "our own first generation, by which a server is ready",
}
"""The stages of a start-up, in the order of their first appearance."""

_BEGINS = (
    ("distributed", re.compile(r"Init (torch distributed|parallel) begin")),
    ("model_classes", re.compile(r"Init (torch distributed|parallel) ends")),
    ("weights", re.compile(r"Load weight begin")),
    ("kv_cache", re.compile(r"Load weight end")),
    ("graphs", re.compile(r"Capture .*\bbegin\b", re.IGNORECASE)),
    ("http", re.compile(r"Capture .*\bend\b|Memory pool end", re.IGNORECASE)),
    ("warm_up", re.compile(r"Application startup complete|Uvicorn running on")),
    ("first_token", re.compile(r"The server is fired up and ready to roll")),
)
_OTHER_RANK = re.compile(r"^\[[^\]]*\b(?:TP|PP|DP|EP)[1-9]\d*[^\]]*\]")
_SCHEDULER = "sglang::scheduler"


def stage_begun(line: str) -> str | None:
    """Return the stage that begins with this log line, if any."""
    if _OTHER_RANK.match(line):
        return None
    return next((stage for stage, pattern in _BEGINS if pattern.search(line)), None)


def seconds_by_stage(
    begun: float, events: Iterable[tuple[float, str]], ended: float
) -> dict[str, float]:
    """Return seconds per stage; repeated stages (the draft's weights) are added up.

    Args:
        begun: Start of the process.
        events: Start and name of each stage.
        ended: Time at which the server was ready.
    """
    seconds = dict.fromkeys(STAGES, 0.0)
    current, since = "launcher", begun
    for at, stage in sorted(events):
        if at >= ended:
            break
        seconds[current] += max(0.0, at - since)
        current, since = stage, max(at, since)
    seconds[current] += max(0.0, ended - since)
    return seconds


@dataclass
class ProcessSeen:
    """One process of a launch.

    Attributes:
        name: Name of the process.
        born: Start time on the clock of `time.time`.
        cpu_s: Latest CPU time.
        rss_mb: Latest memory use.
    """

    name: str
    born: float
    cpu_s: float
    rss_mb: float


@dataclass
class StartWatch:
    """Follow the start-up of one launch in a separate thread.

    Attributes:
        log: Log of the launch.
        pid: The process that was started.
        processes: The process and its descendants, by pid.
    """

    log: Path
    pid: int
    processes: dict[int, ProcessSeen] = field(default_factory=dict)
    _events: list[tuple[float, str]] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.begun = time.time()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def end(self) -> dict[str, float]:
        """Stop the thread; return seconds per stage."""
        ended = time.time()
        self._done.set()
        self._thread.join()
        born = [seen.born for seen in self.processes.values() if _is_scheduler(seen)]
        events = [(min(born), "scheduler")] if born else []
        return seconds_by_stage(self.begun, [*events, *self._events], ended)

    def _follow(self) -> None:
        follower = LogFollower(self.log)
        last_look = 0.0
        while not self._done.is_set():
            for line in follower.lines():
                if (stage := stage_begun(line)) is not None:
                    self._events.append((time.time(), stage))
            if time.monotonic() - last_look > 0.25:
                self._look()
                last_look = time.monotonic()
            self._done.wait(0.01)
        self._look()
        follower.close()

    def _look(self) -> None:
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.pid)
            for process in (leader, *leader.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    self.processes[process.pid] = seen(process)


def seen(process: psutil.Process) -> ProcessSeen:
    """Return the current state of a process.

    Raises:
        psutil.Error: The process has ended.
    """
    with process.oneshot():
        times = process.cpu_times()
        return ProcessSeen(
            process.name(),
            process.create_time(),
            times.user + times.system,
            process.memory_info().rss / 1e6,
        )


def _is_scheduler(process: ProcessSeen) -> bool:
    return process.name.startswith(_SCHEDULER)
