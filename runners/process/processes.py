"""One server process tree: started in a session of its own, stopped with proof.

A process belongs to a launch if it carries the launch's mark in its environment, or lives in the
session that the launch began. Nothing is ever found by name: another server on this machine is
none of ours, and SGLang's schedulers outlive a parent that was killed, with init as their parent
(sglang#31645), so that walking from parent to child misses them.
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
"""The variable that carries a launch's mark to all its processes."""

_SAME_START_S = 2.0
"""A start time is seconds since boot plus the boot's time, which the kernel may correct."""

_ORPHANED_S = 1.0
"""After the leader's end, for its processes to end by themselves before they are told to."""

_EXHAUSTED = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT}
)
"""Errors of a machine that has run out of something, whatever is to be started."""

_POLL_S = 0.05


def marks(mark: str) -> tuple[tuple[str, str], ...]:
    """The variables by which the processes of a launch are known."""
    # SGLang renames its processes, and setproctitle writes the name over `/proc/PID/environ` unless
    # SPT_NOENV is set: the mark would be lost (setproctitle 1.3).
    return ((MARK, mark), ("SPT_NOENV", "1"))


class ServerProcess:
    """A process tree that this tuner started."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        identity: ProcessIdentity,
    ) -> None:
        """Wraps a process that leads its own session.

        Args:
            popen: Its handle.
            identity: Its names.
        """
        self._popen = popen
        self.identity = identity

    @classmethod
    def start(cls, command: LaunchCommand, *, mark: str, port: int, log: Path) -> ServerProcess:
        """Starts `command` in a new session, its output going to `log`.

        Raises:
            OSError: The program could not be started, or the log not be written.
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
            return cls.of(popen, mark=mark, port=port)
        except BaseException:
            _signal_group(popen.pid, signal.SIGKILL)
            popen.wait()
            raise

    @classmethod
    def of(
        cls,
        popen: subprocess.Popen[bytes],
        *,
        mark: str,
        port: int,
    ) -> ServerProcess:
        """A process that leads a session of its own already."""
        try:
            started = psutil.Process(popen.pid).create_time()
        except psutil.NoSuchProcess:
            started = time.time()
        identity = ProcessIdentity(popen.pid, started, mark, port, socket.gethostname())
        return cls(popen, identity)

    def poll(self) -> int | None:
        """The exit code as Python has it (negative: a signal), or `None` while it lives."""
        return self._popen.poll()

    def members(self) -> list[psutil.Process]:
        """All living processes of the launch."""
        ours = _may_own_session(self.identity)
        return _living(
            lambda process: (ours and _in_session(process, self.identity)) or self._marked(process)
        )

    def environ(self) -> dict[str, str]:
        """The environment of the started process, as the kernel has it; empty if unreadable."""
        try:
            return psutil.Process(self.identity.pid).environ()
        except psutil.Error:
            return {}

    def stop(self, grace_s: float, kill_wait_s: float = 15.0) -> tuple[int, ...]:
        """SIGTERM, then after `grace_s` SIGKILL to the group; returns the pids that live even so.

        SIGTERM goes to the leader alone while it lives: it ends its own processes in order and
        exits with 0. Sent to the whole group, SGLang takes it for a crash of a scheduler, and ends
        by SIGKILL after its crash diagnostics (0.5.23). What outlives the leader is told next.
        """
        deadline = time.monotonic() + grace_s
        if self.poll() is None:
            self._popen.terminate()
            if self._gone_within(grace_s, leader_only=True):
                left = deadline - time.monotonic()
                if self._gone_within(min(_ORPHANED_S, left)):
                    return ()
        left = deadline - time.monotonic()
        if left > 0 and self.poll() is not None:
            for process in self.members():
                with suppress(psutil.Error):
                    process.terminate()
            if self._gone_within(left):
                return ()
        self.kill()
        if self._gone_within(kill_wait_s, killing=True):
            return ()
        return tuple(process.pid for process in self.members())

    def kill(self) -> None:
        """SIGKILL to the group and to whatever of the launch has left it."""
        if self.poll() is None:
            _signal_group(self.identity.pid, signal.SIGKILL)
        # Once the leader is reaped, the group's number may be another's: then one by one.
        for process in self.members():
            with suppress(psutil.Error):
                process.kill()

    def _marked(self, process: psutil.Process) -> bool:
        return _mark_of(process) == self.identity.mark

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
                self.kill()  # also what was forked while the others were being killed
            time.sleep(_POLL_S)


def start_or_refuse(command: LaunchCommand, *, mark: str, port: int, log: Path) -> ServerProcess:
    """`ServerProcess.start`; nothing of it is left where it does not return.

    Raises:
        RunnerError: It could not be started.
    """
    try:
        return ServerProcess.start(command, mark=mark, port=port, log=log)
    except OSError as error:
        message = f"cannot start {command.argv[0]} with its log at {log}: {error}"
        fault: Fault = "host" if error.errno in _EXHAUSTED else "study"
        raise RunnerError(Failure("not_started", "arguments", fault, message)) from error
    except BaseException:
        # An interrupt between the birth of the process and its handle: the mark finds it.
        end_leftover(ProcessIdentity(0, 0.0, mark, port, socket.gethostname()))
        raise


def end_leftover(process: ProcessIdentity, wait_s: float = 15.0) -> tuple[int, ...]:
    """Ends what is left of a launch whose tuner is gone; returns the pids that were ended.

    Ours is what carries the mark, and the session of the recorded leader if that very process
    (pid and start time) still leads it.

    Raises:
        RunnerError: Something lives on after `wait_s` of SIGKILL.
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
    """The pids of all living processes of a launch that can be seen here."""
    return tuple(process.pid for process in _living(lambda p: _mark_of(p) == mark))


def process_left(pids: Sequence[int], mark: str) -> RunnerError:
    """What SIGKILL did not end: a fault of the host, which the next launch would meet."""
    message = (
        f"processes {', '.join(map(str, pids))} of launch {mark} live on after SIGKILL "
        "(a driver that does not answer?): end them before going on"
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
    """Whether the session of that number, where there is one, is the launch's.

    A number is free again only once no process of its session lives: a process that has it now
    and is not our leader began a session, or a group, that is somebody else's.
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
