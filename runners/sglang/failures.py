"""Find out why a server failed, from the end of its log, its exit code and its phase."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.records import Failure
from runners.base import RunnerError
from runners.sglang.failure_rules import RULES
from runners.sglang.server_log import FIRST, log_tail

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from runners.process.processes import ServerProcess

DEATH_S = 10.0
"""SGLang takes 5 s for diagnostics between a scheduler's crash and its own end (0.5.23)."""

DYING = re.compile(
    r"^\[[^\]]*\] (SIGQUIT received|Received sigquit from a child"
    r"|Subprocess \S+ \(pid=\d+\) crashed with exit code)",
    re.MULTILINE,
)
"""SGLang announces its own end. With a living scheduler the end takes over a minute, since SGLang
waits 60 s for core dumps (0.5.23)."""

_POLL_S = 0.1
_MOST_CHARACTERS = 400

_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt)\b(?::.*)?$")
_TERSE = re.compile(r"(ZeroDivision|Index|Key|Attribute|Type|[\w.]*JSONDecode)Error\b")
"""Errors whose text names neither a flag nor a file, so the message needs the place."""
_LOCATION = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_NOISE = re.compile(
    r"^\s|^\[[^\]]*\] (kill_process_tree|Received sigquit|SIGQUIT received|Sleeping \d+ seconds"
    r"|No live scheduler)|^###|^Traceback|^During handling|^The above exception|^Possible solutions"
    r"|^\(?\d[.)] |^Open an issue|^$|it/s\]|^Capturing batches|UserWarning"
    # C++ traces of torch's store while it retries to connect.
    r"|^frame #|^Exception raised from|^<omitting python frames>"
)
# SGLang logs all its arguments, and uvicorn every request. Neither is a symptom.
_ECHO = re.compile(r"^.*(server_args=|INFO: +\S+:\d+ - \"[A-Z]+ ).*\n?", re.MULTILINE)
_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\]\s*")
_ENDS_ITSELF = re.compile(r"kill_process_tree|SIGQUIT received|Received sigquit from a child")
"""SGLang logs one of these before it ends its own group; 0.5.9 has only the last two."""
_READING_FLAGS = re.compile(
    r'server_args\.py", line \d+, in '
    r"(resolve_once|check_server_args|__post_init__|_handle_\w+|from_cli_args|prepare_server_args)"
)
_FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""Signals that others send. A process causes the other signals (SIGSEGV, SIGABRT, ...) itself."""


def recognise(
    tail: str, *, exit_code: int | None, phase: str, varied_flags: Collection[str] = ()
) -> Failure:
    """Name the failure of a server that ended or must be ended.

    Args:
        tail: End of the server's log.
        exit_code: As in `Popen.returncode`; `None` for a living server.
        phase: Start-up phase that the server reached.
        varied_flags: Flags that the study varies. A bad value of one of them is the configuration's
            fault, not the study's.
    """
    tail = _ECHO.sub("", tail)
    for rule in RULES:
        if (found := rule.search(tail)) is None:
            continue
        fault = rule.fault
        if rule.kind in {"bad_flag_value", "unknown_flag"}:
            flag = re.search(r"--([\w-]+)", found[0])
            if flag is not None and flag[1] in varied_flags:
                fault = "configuration"
        line = _line_around(tail, found)
        if _EXCEPTION.match(line) and ":" not in line:
            line = _located(tail, line)
        message = f"{line} ({rule.advice})" if rule.advice else line
        return Failure(rule.kind, rule.phase or phase, fault, _shortened(message))
    return _unknown(tail, exit_code, phase)


def ready_timeout(tail: str, *, phase: str, seconds: float) -> Failure:
    """Failure of a server that made no progress in `phase` for `seconds`."""
    last = _last_meaningful(_ECHO.sub("", tail))
    message = f"no progress in {phase} for {seconds:.0f} s; last line: {last}"
    return Failure("ready_timeout", phase, "configuration", _shortened(message))


def _unknown(tail: str, exit_code: int | None, phase: str) -> Failure:
    last = _last_meaningful(tail)
    number = _signal_of(exit_code)
    if number in _FROM_OUTSIDE and _ENDS_ITSELF.search(tail) is None:
        message = f"signal {number} from outside ended the server; last line: {last}"
        return Failure("server_killed", phase, "host", _shortened(message))
    if exit_code == 0:
        # No crash: SGLang exits with 0 only after SIGTERM.
        message = f"the server exited normally, but not by the tuner; last line: {last}"
        return Failure("server_ended", phase, "host", _shortened(message))
    if phase == FIRST and _READING_FLAGS.search(tail):
        message = (
            f"{_located(tail, last)} (SGLang refuses these flags; correct `server.flags` or the "
            "flags of the space)"
        )
        return Failure("invalid_flags", phase, "configuration", _shortened(message))
    state = "still running" if exit_code is None else f"exit code {exit_code}"
    message = f"{_located(tail, last)} ({state})"
    return Failure("server_crashed", phase, "configuration", _shortened(message))


def _signal_of(exit_code: int | None) -> int | None:
    """Signal that ended a process; a command prefix (a shell, docker) adds 128."""
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    return -exit_code if exit_code < 0 else exit_code - 128


def _line_around(tail: str, found: re.Match[str]) -> str:
    start = tail.rfind("\n", 0, found.start()) + 1
    end = tail.find("\n", found.start())
    line = tail[start : end if end >= 0 else len(tail)]
    return _STAMP.sub("", line).strip()


def _last_meaningful(tail: str) -> str:
    lines = tail.splitlines()
    for line in reversed(lines):
        if _EXCEPTION.match(line):
            return line.strip()
    for line in reversed(lines):
        if not _NOISE.search(line):
            return _STAMP.sub("", line).strip()
    return "the log is empty"


def _located(tail: str, line: str) -> str:
    """Add the place that raised an exception if its text is too short to help."""
    if not _EXCEPTION.match(line) or (":" in line and not _TERSE.match(line)):
        return line
    before = tail[: tail.rfind(line)].splitlines()
    places = [place for text in before if (place := _LOCATION.match(text)) is not None]
    if not places:
        return line
    # If a library refuses a value, SGLang's own line shows which value.
    own = [place for place in places if "/sglang/" in place["file"]]
    place = (own or places)[-1]
    file = place["file"].rsplit("/", 1)[-1]
    return f"{line} at {file}:{place['line']} in {place['name']}"


def _shortened(message: str) -> str:
    return message if len(message) <= _MOST_CHARACTERS else message[: _MOST_CHARACTERS - 3] + "..."


@dataclass(frozen=True, slots=True)
class PostMortem:
    """Examines the process and the log of one launch.

    Attributes:
        process: The server process.
        log: Log of the server.
        varied_flags: See `recognise`.
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
        client = error.failure.fault == "client"
        wait = DEATH_S if error.failure.kind in {"server_gone", "server_hung"} else 0.5
        deadline = time.monotonic() + (0.0 if client else wait)
        while True:
            if (failure := self.failure(phase)) is not None:
                return RunnerError(failure)
            if time.monotonic() >= deadline:
                dying = None if client else self.dying(phase)
                return error if dying is None else RunnerError(dying)
            time.sleep(_POLL_S)
