"""Wait until a started server is ready, and prove that this launch owns its port."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from results.records import Failure
from runners.base import RunnerError, StartProgress
from runners.process.environment import served_name
from runners.process.ports import is_free, listens
from runners.sglang.failures import DEATH_S, DYING, ready_timeout
from runners.sglang.server_log import FIRST, GRAPHS, READY, LogFollower, log_tail, phase_begun

if TYPE_CHECKING:
    from collections.abc import Callable

    from runners.sglang.failures import PostMortem
    from runners.sglang.session import ServerClient

_POLL_S = 0.05
_TRY_S = 0.2
_EARLY_TRY_S = 2.0
"""Between checks of the port before the log reports that the server is ready. An unknown version
may never log that line."""
_SERVING = frozenset({"warmup", READY})
_EARLY_HEALTH_S = 10.0
"""Timeout of `/health` before the log reports that the server is ready."""


@dataclass(frozen=True, slots=True)
class StartTimeouts:
    """Longest time of each start-up phase.

    Attributes:
        phases: Server's seconds by phase.
        floor_s: Shortest timeout in real seconds, since the imports of a simulated server take real
            time at any time scale.
    """

    phases: tuple[tuple[str, float], ...] = (
        (FIRST, 300.0),
        ("distributed", 300.0),
        ("weights", 3600.0),  # a terabyte from a network disk
        ("kv_cache", 300.0),
        (GRAPHS, 1200.0),
        ("warmup", 600.0),  # kernels are compiled at their first use
        (READY, 120.0),
    )
    floor_s: float = 30.0

    def with_states(self, states: int) -> StartTimeouts:
        """Timeouts of a server with this many settings, each with its own graphs."""
        phases = dict(self.phases)
        phases[GRAPHS] = phases.get(GRAPHS, 0.0) * max(1, states)
        return replace(self, phases=tuple(phases.items()))

    def real_seconds(self, phase: str, time_scale: float) -> float:
        """Timeout of a phase in real seconds."""
        return max(self.floor_s, dict(self.phases).get(phase, 300.0) / time_scale)


class PhaseClock:
    """Adds up the seconds of each phase.

    A phase may occur twice, because 0.5.9 loads the draft after the target's graphs.
    """

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


class Startup:
    """Waits for the start-up of one server."""

    def __init__(
        self,
        client: ServerClient,
        post_mortem: PostMortem,
        *,
        sees_processes: bool,
        timeouts: StartTimeouts,
        time_scale: float,
        on_progress: Callable[[StartProgress], None],
    ) -> None:
        self._process = post_mortem.process
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

    def wait(self) -> tuple[tuple[str, float], ...]:
        """Wait until the server is ready; return the real seconds of each phase.

        Raises:
            RunnerError: The server died, hung in a phase, or another process has its port.
        """
        follower = LogFollower(self._log)
        try:
            self._on_progress(StartProgress(self._clock.current, 0.0))
            while True:
                self._follow(follower)
                # The last lines may come together with the exit: follow the log, then judge.
                if (exit_code := self._process.poll()) is not None:
                    self._follow(follower)
                    raise RunnerError(self._post_mortem.of(exit_code, self._clock.current))
                self._check_dying()
                if self._dying_since is None and self._ready():
                    return self._clock.finish(time.monotonic())
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
                self._dying_since = None  # a supervisor restarted the server
            if phase is not None and self._clock.enter(phase, now):
                elapsed = (now - self._begun) * self._time_scale
                self._on_progress(StartProgress(phase, elapsed))

    def _check_dying(self) -> None:
        """Fail if the server announced its end `DEATH_S` ago and still lives."""
        if self._dying_since is None or time.monotonic() - self._dying_since < DEATH_S:
            return
        failure = self._post_mortem.dying(self._clock.current)
        if failure is not None:
            raise RunnerError(failure)

    def _ready(self) -> bool:
        """Whether the server lives, owns its port, and answered a real request."""
        now = time.monotonic()
        ready = self._clock.current == READY
        if now - self._last_try < (_TRY_S if ready else _EARLY_TRY_S):
            return False
        self._last_try = now
        # Do not bind the port as a test: the server could fail on our socket.
        if not self._owned():
            return False
        # Before the ready line, `/health` answers 503 at once, or hangs in a dying server. After
        # that line a generation proves more: `/health` generates a token too, but checks for it
        # once a second, which adds a second per launch (http_server.py, 0.5.9 to 0.5.23).
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
            message = f"a process of another launch serves port {port}; stop that process"
            raise RunnerError(Failure("port_taken", phase, "host", message))
        failure = ready_timeout(log_tail(self._log), phase=phase, seconds=waited * self._time_scale)
        if self._wrong is not None:
            message = f"{failure.message}; {self._wrong}"
            failure = Failure(failure.kind, failure.phase, failure.fault, message)
        raise RunnerError(failure)
