"""Why a server failed: recognised from the end of its log, its exit code and its phase."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from results.records import Failure
from runners.sglang.failures.server_rules import RULES
from runners.sglang.phases import FIRST

if TYPE_CHECKING:
    from collections.abc import Collection

_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt)\b(?::.*)?$")
_TERSE = re.compile(r"(ZeroDivision|Index|Key|Attribute|Type|[\w.]*JSONDecode)Error\b")
"""What Python says of a slip: it names no flag and no file, so the place says more."""
_LOCATION = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_NOISE = re.compile(
    r"^\s|^\[[^\]]*\] (kill_process_tree|Received sigquit|SIGQUIT received|Sleeping \d+ seconds"
    r"|No live scheduler)|^###|^Traceback|^During handling|^The above exception|^Possible solutions"
    r"|^\(?\d[.)] |^Open an issue|^$|it/s\]|^Capturing batches|UserWarning"
    # C++ traces of torch's store, which tries again and again while it reaches nobody.
    r"|^frame #|^Exception raised from|^<omitting python frames>"
)
# SGLang prints all its arguments, and uvicorn every request: neither is a symptom.
_ECHO = re.compile(r"^.*(server_args=|INFO: +\S+:\d+ - \"[A-Z]+ ).*\n?", re.MULTILINE)
_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\]\s*")
_ITS_OWN_DOING = re.compile(r"kill_process_tree|SIGQUIT received|Received sigquit from a child")
"""SGLang says so before it ends its own group; 0.5.9 has only the last two."""
_READING_FLAGS = re.compile(
    r'server_args\.py", line \d+, in '
    r"(resolve_once|check_server_args|__post_init__|_handle_\w+|from_cli_args|prepare_server_args)"
)
_FLAG = re.compile(r"--([\w-]+)")
_LONGEST = 400
_REFUSED = "SGLang refuses these flags: correct `server.flags`, or what the space gives them"
_FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""Signals that somebody sends; the others (SIGSEGV, SIGABRT, ...) a process brings on itself."""


def recognise(
    tail: str, *, exit_code: int | None, phase: str, varied_flags: Collection[str] = ()
) -> Failure:
    """Names the failure of a server that ended or must be ended.

    Args:
        tail: The end of its log.
        exit_code: As Python has it; `None` for a server that still lives.
        phase: The phase that it was in.
        varied_flags: Flags that the study varies: a bad value of one of them is the
            configuration's fault, not the study's.
    """
    tail = _ECHO.sub("", tail)
    for rule in RULES:
        found = rule.pattern.search(tail)
        if found is None or not rule.also(tail):
            continue
        line = _line_around(tail, found)
        fault = rule.fault
        if rule.kind in {"bad_flag_value", "unknown_flag"}:
            named = _FLAG.search(found[0])
            if named is not None and named[1] in varied_flags:
                fault = "configuration"
        if _EXCEPTION.match(line) and ":" not in line:
            line = _located(tail, line)
        message = f"{line} ({rule.hint})" if rule.hint else line
        return Failure(rule.kind, rule.phase or phase, fault, _shortened(message))
    return _unknown(tail, exit_code, phase)


def ready_timeout(tail: str, *, phase: str, seconds: float) -> Failure:
    """The failure of a server that stood still in `phase` for `seconds`."""
    last = _last_meaningful(_ECHO.sub("", tail)) or "the log is empty"
    return Failure(
        "ready_timeout",
        phase,
        "configuration",
        _shortened(f"no progress in {phase} for {seconds:.0f} s; last line: {last}"),
    )


def _unknown(tail: str, exit_code: int | None, phase: str) -> Failure:
    last = _last_meaningful(tail) or "the log is empty"
    number = _signal_of(exit_code)
    if number in _FROM_OUTSIDE and _ITS_OWN_DOING.search(tail) is None:
        message = f"ended by signal {number} from outside; last line: {last}"
        return Failure("server_killed", phase, "host", _shortened(message))
    if exit_code == 0:
        # A crash never ends so: SGLang ends in good order when it is told to (SIGTERM).
        message = f"ended in good order although the tuner did not stop it; last line: {last}"
        return Failure("server_ended", phase, "host", _shortened(message))
    if phase == FIRST and _READING_FLAGS.search(tail):
        message = f"{_located(tail, last)} ({_REFUSED})"
        return Failure("invalid_flags", phase, "configuration", _shortened(message))
    how = "lives" if exit_code is None else f"exit code {exit_code}"
    return Failure(
        "server_crashed", phase, "configuration", _shortened(f"{_located(tail, last)} ({how})")
    )


def _signal_of(exit_code: int | None) -> int | None:
    """The signal that ended a process; a command prefix (a shell, docker) reports 128 more."""
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
    return ""


def _located(tail: str, line: str) -> str:
    """An exception that says little with the place that raised it."""
    if not _EXCEPTION.match(line) or (":" in line and not _TERSE.match(line)):
        return line
    before = tail[: tail.rfind(line)].splitlines()
    places = [place for text in before if (place := _LOCATION.match(text)) is not None]
    if not places:
        return line
    # Of a value that a library rejects, SGLang's line says which one it is.
    own = [place for place in places if "/sglang/" in place["file"]]
    place = (own or places)[-1]
    file = place["file"].rsplit("/", 1)[-1]
    return f"{line} at {file}:{place['line']} in {place['name']}"


def _shortened(message: str) -> str:
    return message if len(message) <= _LONGEST else message[: _LONGEST - 3] + "..."
