"""Disturbances that run beside a block, to measure their cost to the measured server.

A disturbance is a context manager around one block; outside the block, nothing runs.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

IDLE_SERVER = "idle_server"
IMPORTS = "imports"
BUSY_CORE = "busy_core"
PINNED_CLIENT = "pinned_client"
UNSTREAMED = "unstreamed"

DISTURBANCES = {
    IDLE_SERVER: "a second server, ready and idle (its scheduler polls a core)",
    IMPORTS: "SGLang's imports, over and over, as the next server's start would run them",
    BUSY_CORE: "a process that keeps one core busy and does nothing else",
    PINNED_CLIENT: "the load generator tied to one core",
    UNSTREAMED: "answers in one piece, so that the load generator has nothing to do (at 1 user)",
}


class NoDisturbanceError(Exception):
    """The disturbance did not run, so its blocks were quiet."""


_SETTLE_S = 0.5
"""After a disturbance has begun, before the block: a woken server has something to catch up on."""


@contextlib.contextmanager
def nothing() -> Iterator[None]:
    """Run no disturbance, but wait as long as the other conditions."""
    time.sleep(_SETTLE_S)
    yield


class PausedServer:
    """A second server that is stopped (SIGSTOP), except during the blocks that it disturbs.

    The server holds its memory all the time, so quiet and disturbed blocks have equal memory.

    Args:
        pid: Process group of the server.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def pause(self) -> None:
        """Stop all processes of the server."""
        os.killpg(self._pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Continue all processes of the server."""
        os.killpg(self._pid, signal.SIGCONT)

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Let the server run idle for the duration of the context."""
        self.wake()
        try:
            time.sleep(_SETTLE_S)
            yield
        finally:
            self.pause()


@contextlib.contextmanager
def repeated(argv: Sequence[str], environment: dict[str, str] | None = None) -> Iterator[None]:
    """Run a command repeatedly in a separate session.

    Raises:
        NoDisturbanceError: The command fails.
    """
    beside = _Repeated(argv, environment)
    beside.start()
    try:
        time.sleep(_SETTLE_S)
        yield
    finally:
        beside.end()
    if beside.failed is not None:
        raise NoDisturbanceError(f"`{shlex.join(argv)}` ended with {beside.failed}")


class _Repeated(threading.Thread):
    def __init__(self, argv: Sequence[str], environment: dict[str, str] | None) -> None:
        super().__init__(daemon=True)
        self._argv = tuple(argv)
        self._environment = environment
        self._lock = threading.Lock()
        self._ending = False
        self._process: subprocess.Popen[bytes] | None = None
        self.failed: int | None = None

    def run(self) -> None:
        while True:
            with self._lock:
                if self._ending:
                    return
                self._process = subprocess.Popen(
                    self._argv,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            code = self._process.wait()
            with self._lock:
                if code != 0 and not self._ending:
                    self.failed = code
                    return

    def end(self) -> None:
        """End the command and its descendants, and wait for their end."""
        with self._lock:
            self._ending = True
            if self._process is not None and self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        self.join()


@contextlib.contextmanager
def pinned() -> Iterator[None]:
    """Pin this thread, the load generator, to the last core that it may use."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        time.sleep(_SETTLE_S)
        yield
    finally:
        os.sched_setaffinity(0, cores)


def made(
    names: Sequence[str],
    *,
    imports: Sequence[str],
    environment: dict[str, str] | None,
    second: PausedServer | None,
) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    """Make disturbances by name; each is entered around a block.

    Args:
        names: Names in `DISTURBANCES`.
        imports: Command that imports the modules of a server.
        environment: Environment of this command.
        second: Second server, for `IDLE_SERVER`.
    """
    known: dict[str, Callable[[], AbstractContextManager[None]]] = {
        IMPORTS: lambda: repeated(imports, environment),
        BUSY_CORE: lambda: repeated((sys.executable, "-c", "while True: pass")),
        PINNED_CLIENT: pinned,
        UNSTREAMED: nothing,
    }
    if second is not None:
        known[IDLE_SERVER] = second.awake
    return {name: known[name] for name in names}
