"""From a started process to a server that is ready and proven to be ours."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.records import Failure
from runners.base import RunnerError, StartProgress
from runners.process.environment import served_name
from runners.process.ports import is_free, listens
from runners.sglang.failures.classify import ready_timeout
from runners.sglang.phases import (
    READY,
    LogFollower,
    PhaseClock,
    StartTimeouts,
    log_tail,
    phase_begun,
)
from runners.sglang.post_mortem import DEATH_S, DYING

if TYPE_CHECKING:
    from collections.abc import Callable

    from runners.process.processes import ServerProcess
    from runners.sglang.post_mortem import PostMortem
    from runners.sglang.server_client import ServerClient

_POLL_S = 0.05
_TRY_S = 0.2
_EARLY_TRY_S = 2.0
"""Between looks at the port before the log says that the server is ready: a log may be of a version
whose lines are not known."""
_SERVING = frozenset({"warmup", READY})
_EARLY_HEALTH_S = 10.0
"""For `/health` before the log says that the server is ready."""


@dataclass(frozen=True, slots=True)
class Started:
    """A start-up that succeeded; times are real seconds.

    Attributes:
        phases: Seconds per phase.
        ready_s: Seconds until the first good generation.
    """

    phases: tuple[tuple[str, float], ...]
    ready_s: float


class Startup:
    """Waits for one server."""

    def __init__(
        self,
        process: ServerProcess,
        client: ServerClient,
        post_mortem: PostMortem,
        *,
        sees_processes: bool,
        timeouts: StartTimeouts,
        time_scale: float,
        on_progress: Callable[[StartProgress], None],
    ) -> None:
        self._process = process
        self._client = client
        self._post_mortem = post_mortem
        self._log = post_mortem.log
        self._sees_processes = sees_processes
        self._timeouts = timeouts
        self._time_scale = time_scale
        self._on_progress = on_progress
        self._begun = time.monotonic()
        self._clock = PhaseClock(self._begun)
        self._last_try = 0.0
        self._wrong: str | None = None
        self._dying_since: float | None = None

    def wait(self) -> Started:
        """Waits until it is ready.

        Raises:
            RunnerError: It died, stood still in a phase, or its port is another's.
        """
        follower = LogFollower(self._log)
        try:
            self._on_progress(StartProgress(self._clock.current, 0.0))
            while True:
                self._follow(follower)
                # A phase's lines may come in one piece with the end: read first, then judge.
                if (exit_code := self._process.poll()) is not None:
                    self._follow(follower)
                    raise RunnerError(self._post_mortem.of(exit_code, self._clock.current))
                self._check_dying()
                if self._dying_since is None and self._ready():
                    now = time.monotonic()
                    return Started(self._clock.finish(now), now - self._begun)
                self._check_patience()
                time.sleep(_POLL_S)
        finally:
            follower.close()

    def _follow(self, follower: LogFollower) -> None:
        for line in follower.lines():
            phase = phase_begun(line)
            now = time.monotonic()
            if DYING.match(line):
                self._dying_since = now
            elif phase is not None:
                self._dying_since = None  # something has started it anew
            if phase is not None and self._clock.enter(phase, now):
                elapsed = (now - self._begun) * self._time_scale
                self._on_progress(StartProgress(phase, elapsed))

    def _check_dying(self) -> None:
        """Gives up a server that has said that it ends itself, and takes its time over it."""
        if self._dying_since is None or time.monotonic() - self._dying_since < DEATH_S:
            return
        failure = self._post_mortem.dying(self._clock.current)
        if failure is not None:
            raise RunnerError(failure)

    def _ready(self) -> bool:
        """Whether a real generation succeeded, at a port that is ours, and the server lives."""
        now = time.monotonic()
        ready = self._clock.current == READY
        if now - self._last_try < (_TRY_S if ready else _EARLY_TRY_S):
            return False
        self._last_try = now
        # Not by trying to bind the port: the server might meet our socket on it.
        if not self._owned():
            return False
        # Until it says that it is ready it answers 503 at once, or hangs because it is dying. Then
        # a generation says more than `/health`, which generates a token itself and looks for it
        # once a second: a second more for every launch (http_server.py, 0.5.9 to 0.5.23).
        if not ready and not self._client.healthy(self._patience(_EARLY_HEALTH_S)):
            return False
        mark = self._process.identity.mark
        self._wrong = self._client.generates(mark, self._patience(600.0))
        return self._wrong is None and self._process.poll() is None and self._owned()

    def _owned(self) -> bool:
        if self._sees_processes:
            return listens(self._process.members(), self._process.identity.port)
        return served_name(self._process.identity.mark) in self._client.model_names()

    def _patience(self, at_most: float) -> float:
        return max(1.0, min(at_most, self._limit() - self._clock.in_current(time.monotonic())))

    def _limit(self) -> float:
        return self._timeouts.real_seconds(self._clock.current, self._time_scale)

    def _check_patience(self) -> None:
        waited = self._clock.in_current(time.monotonic())
        if waited < self._limit():
            return
        phase, port = self._clock.current, self._process.identity.port
        if phase in _SERVING and not is_free(port) and not self._owned():
            message = f"port {port} is served by a process that is not of this launch"
            raise RunnerError(Failure("port_taken", phase, "host", message))
        failure = ready_timeout(log_tail(self._log), phase=phase, seconds=waited * self._time_scale)
        if self._wrong is not None:
            message = f"{failure.message}; {self._wrong}"
            failure = Failure(failure.kind, failure.phase, failure.fault, message)
        raise RunnerError(failure)
