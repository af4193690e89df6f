"""One server process tree: started in its own session, stopped with proof.

A process belongs to a launch if its environment has the launch's mark, or if it is in the session
that the launch started. Names do not identify processes, because other servers may run on this
machine. Parents do not either, because SGLang's schedulers outlive a killed parent (sglang#31645).
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from results.records import Failure, ProcessIdentity
from runners.base import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from results.records import Fault
    from runners.base import LaunchCommand

MARK = "TUNER_LAUNCH"
"""Variable with the launch's mark, inherited by all processes of the launch."""

_SAME_START_S = 2.0
"""Tolerance of a start time, because the kernel may correct the time of boot."""

_ORPHANED_S = 1.0
"""Time after the leader's end in which its processes may end without a signal."""

_EXHAUSTED = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT}
)
"""Errors of a machine without enough resources."""

_POLL_S = 0.05


def marks(mark: str) -> tuple[tuple[str, str], ...]:
    """Variables that identify the processes of a launch."""
    # SGLang renames its processes. Without SPT_NOENV, setproctitle overwrites `/proc/PID/environ`
    # with the name, and the mark is lost (setproctitle 1.3).
    return ((MARK, mark), ("SPT_NOENV", "1"))


class ServerProcess:
    """A process tree that this tuner started, led by a process with its own session."""

    def __init__(self, popen: subprocess.Popen[bytes], identity: ProcessIdentity) -> None:
        self._popen = popen
        self.identity = identity

    @classmethod
    def start(cls, command: LaunchCommand, *, mark: str, port: int, log: Path) -> ServerProcess:
        """Start `command` in a new session, with its output in `log`.

        Raises:
            OSError: The program could not be started, or the log could not be written.
        """
        environment = command.environment() | dict(marks(mark))
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            popen = subprocess.Popen(
                command.argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            try:
                started = psutil.Process(popen.pid).create_time()
            except psutil.NoSuchProcess:
                started = time.time()
            identity = ProcessIdentity(popen.pid, started, mark, port, socket.gethostname())
            return cls(popen, identity)
        except BaseException:
            _signal_group(popen.pid, signal.SIGKILL)
            popen.wait()
            raise

    def poll(self) -> int | None:
        """Exit code as in `Popen.poll` (negative: a signal); `None` while the process lives."""
        return self._popen.poll()

    def members(self) -> list[psutil.Process]:
        """All living processes of the launch."""
        ours = _may_own_session(self.identity)
        return _living(
            lambda process: (
                (ours and _in_session(process, self.identity))
                or _mark_of(process) == self.identity.mark
            )
        )

    def environ(self) -> dict[str, str]:
        """Environment of the started process, from the kernel; empty if unreadable."""
        try:
            return psutil.Process(self.identity.pid).environ()
        except psutil.Error:
            return {}

    def stop(self, grace_s: float, kill_wait_s: float = 15.0) -> None:
        """Send SIGTERM, then after `grace_s` SIGKILL; return once no process of the launch lives.

        SIGTERM goes only to the leader while it lives: the leader ends its processes and exits
        with 0. SGLang treats SIGTERM to the whole group as a scheduler crash, and ends by SIGKILL
        after its crash diagnostics (0.5.23). Processes that outlive the leader get SIGTERM next.

        Raises:
            RunnerError: A process survived SIGKILL (a fault of the host).
        """
        try:
            if self._terminated(grace_s):
                return
        except BaseException:
            self.kill()  # a second interrupt ends the grace period
            raise
        self.kill()
        if not self._gone_within(kill_wait_s, killing=True):
            raise process_left([process.pid for process in self.members()], self.identity.mark)

    def _terminated(self, grace_s: float) -> bool:
        deadline = time.monotonic() + grace_s
        if self.poll() is None:
            self._popen.terminate()
            if self._gone_within(grace_s, leader_only=True):
                left = deadline - time.monotonic()
                if self._gone_within(min(_ORPHANED_S, left)):
                    return True
        left = deadline - time.monotonic()
        if left <= 0 or self.poll() is None:
            return False
        for process in self.members():
            with suppress(psutil.Error):
                process.terminate()
        return self._gone_within(left)

    def kill(self) -> None:
        """Send SIGKILL to the group, and to processes of the launch outside of the group."""
        if self.poll() is None:
            _signal_group(self.identity.pid, signal.SIGKILL)
        # After the leader's end another process may get its group number, so kill by pid.
        for process in self.members():
            with suppress(psutil.Error):
                process.kill()

    def _gone_within(
        self, seconds: float, *, killing: bool = False, leader_only: bool = False
    ) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            if self.poll() is not None and (leader_only or not self.members()):
                return True
            if time.monotonic() >= deadline:
                return False
            if killing:
                self.kill()  # also processes that were forked meanwhile
            time.sleep(_POLL_S)


def start_or_refuse(command: LaunchCommand, *, mark: str, port: int, log: Path) -> ServerProcess:
    """Start a process, or leave no process behind.

    Raises:
        RunnerError: The process could not be started.
    """
    try:
        return ServerProcess.start(command, mark=mark, port=port, log=log)
    except OSError as error:
        message = f"cannot start {command.argv[0]} with its log at {log}: {error}"
        fault: Fault = "host" if error.errno in _EXHAUSTED else "study"
        raise RunnerError(Failure("not_started", "arguments", fault, message)) from error
    except BaseException:
        # An interrupt may come before the handle exists, so search for the mark.
        end_leftover(ProcessIdentity(0, 0.0, mark, port, socket.gethostname()))
        raise


def end_leftover(process: ProcessIdentity, wait_s: float = 15.0) -> tuple[int, ...]:
    """End the processes of a launch whose tuner was killed; return their pids.

    These are processes with the launch's mark, and the session of the recorded leader if the same
    process (pid and start time) still leads the session.

    Raises:
        RunnerError: A process survived `wait_s` of SIGKILL.
    """
    if process.host and process.host != socket.gethostname():
        return ()

    def ours(candidate: psutil.Process) -> bool:
        return _mark_of(candidate) == process.mark or (leads and _in_session(candidate, process))

    leads = _is_same(process)
    ended: dict[int, None] = {}
    deadline = time.monotonic() + wait_s
    while left := _living(ours):
        if time.monotonic() >= deadline:
            raise process_left([found.pid for found in left], process.mark)
        for found in left:
            with suppress(psutil.Error):
                found.kill()
                ended[found.pid] = None
        time.sleep(_POLL_S)
    return tuple(ended)


def marked(mark: str) -> tuple[int, ...]:
    """Pids of all visible living processes of a launch."""
    return tuple(process.pid for process in _living(lambda p: _mark_of(p) == mark))


def process_left(pids: Sequence[int], mark: str) -> RunnerError:
    """Error of processes that SIGKILL did not end (a fault of the host)."""
    message = (
        f"processes {', '.join(map(str, pids))} of launch {mark} survived SIGKILL "
        "(a hung driver?); end them, then run `tuner resume`"
    )
    return RunnerError(Failure("process_left", "stop", "host", message))


def _living(wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if wanted(process) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _in_session(process: psutil.Process, identity: ProcessIdentity) -> bool:
    try:
        same = os.getsid(process.pid) == identity.pid
    except (ProcessLookupError, PermissionError):
        return False
    return same and process.create_time() >= identity.started - _SAME_START_S


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None


def _may_own_session(identity: ProcessIdentity) -> bool:
    """Whether a session with the leader's pid belongs to the launch.

    The kernel reuses a pid only after every process of its session has ended. So a process that has
    the pid now and is not our leader has another session.
    """
    return _is_same(identity) or not psutil.pid_exists(identity.pid)


def _is_same(identity: ProcessIdentity) -> bool:
    try:
        started = psutil.Process(identity.pid).create_time()
    except psutil.Error:
        return False
    return abs(started - identity.started) <= _SAME_START_S


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
