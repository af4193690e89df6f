"""Why a server is gone: asked wherever something that it should have done went wrong."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.base import RunnerError
from runners.sglang.failures.classify import recognise
from runners.sglang.phases import log_tail

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from results.records import Failure
    from runners.process.processes import ServerProcess

DEATH_S = 10.0
"""SGLang takes 5 s for diagnostics between a scheduler's crash and its own end (0.5.23)."""

_POLL_S = 0.1

DYING = re.compile(
    r"^\[[^\]]*\] (SIGQUIT received|Received sigquit from a child"
    r"|Subprocess \S+ \(pid=\d+\) crashed with exit code)",
    re.MULTILINE,
)
"""SGLang has begun to end itself. Where a scheduler still lives, that takes it over a minute: it
waits 60 s for core dumps (0.5.23)."""


@dataclass(frozen=True, slots=True)
class PostMortem:
    """Looks at one launch's process and log.

    Attributes:
        process: The server.
        log: Its log.
        varied_flags: Flags that the study varies; see `recognise`.
    """

    process: ServerProcess
    log: Path
    varied_flags: Collection[str]

    def failure(self, phase: str) -> Failure | None:
        """Of what the server died; `None` while it lives."""
        exit_code = self.process.poll()
        return None if exit_code is None else self.of(exit_code, phase)

    def dying(self, phase: str) -> Failure | None:
        """Of what a server dies that has not ended yet, but has said that it will."""
        tail = log_tail(self.log)
        if DYING.search(tail) is None:
            return None
        return recognise(tail, exit_code=None, phase=phase, varied_flags=self.varied_flags)

    def of(self, exit_code: int, phase: str) -> Failure:
        """Of what a server died that ended with this exit code."""
        return recognise(
            log_tail(self.log), exit_code=exit_code, phase=phase, varied_flags=self.varied_flags
        )

    def explain(self, error: RunnerError, phase: str) -> RunnerError:
        """The cause in the log, if the server is dead or dying of one; else the error as it is."""
        wait = 0.5
        if error.failure.fault == "client":
            wait = 0.0
        elif error.failure.kind in {"server_gone", "server_hung"}:
            wait = DEATH_S
        deadline = time.monotonic() + wait
        while True:
            if (failure := self.failure(phase)) is not None:
                return RunnerError(failure)
            if time.monotonic() >= deadline:
                dying = None if error.failure.fault == "client" else self.dying(phase)
                return error if dying is None else RunnerError(dying)
            time.sleep(_POLL_S)
