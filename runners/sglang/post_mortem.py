"""Find the cause of a server's death in its exit code and log."""

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
"""SGLang announces its own end. With a living scheduler the end takes over a minute, since SGLang
waits 60 s for core dumps (0.5.23)."""


@dataclass(frozen=True, slots=True)
class PostMortem:
    """Examines the process and the log of one launch.

    Attributes:
        process: The server process.
        log: Log of the server.
        varied_flags: Flags that the study varies; see `recognise`.
    """

    process: ServerProcess
    log: Path
    varied_flags: Collection[str]

    def failure(self, phase: str) -> Failure | None:
        """Failure of a dead server; `None` while the server lives."""
        exit_code = self.process.poll()
        return None if exit_code is None else self.of(exit_code, phase)

    def dying(self, phase: str) -> Failure | None:
        """Failure of a server that lives but has announced its end in the log."""
        tail = log_tail(self.log)
        if DYING.search(tail) is None:
            return None
        return recognise(tail, exit_code=None, phase=phase, varied_flags=self.varied_flags)

    def of(self, exit_code: int, phase: str) -> Failure:
        """Failure of a server that ended with this exit code."""
        return recognise(
            log_tail(self.log), exit_code=exit_code, phase=phase, varied_flags=self.varied_flags
        )

    def explain(self, error: RunnerError, phase: str) -> RunnerError:
        """Replace an error by the cause in the log if the server is dead or dying."""
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
