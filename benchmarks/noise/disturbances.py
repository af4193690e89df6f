"""What runs beside a block on purpose, to see what it costs the measured server.

A disturbance is a context manager around one block; outside of it nothing of it runs.
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
    """What was to run beside did not: the blocks were as quiet as others."""


_SETTLE_S = 0.5
"""After a disturbance has begun, before the block: a woken server has something to catch up on."""


@contextlib.contextmanager
def nothing() -> Iterator[None]:
    """The quiet arm: it waits as the others do."""
    time.sleep(_SETTLE_S)
    yield


class PausedServer:
    """A second server that is stopped (SIGSTOP) but for the blocks that it is to disturb.

    It holds its memory all the time, in both arms.

    Args:
        pid: Its process group.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def pause(self) -> None:
        """Stops all of its processes."""
        os.killpg(self._pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Lets them run on."""
        os.killpg(self._pid, signal.SIGCONT)

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Idle and polling, for as long as this lasts."""
        self.wake()
        try:
            time.sleep(_SETTLE_S)
            yield
        finally:
            self.pause()


@contextlib.contextmanager
def repeated(argv: Sequence[str], environment: dict[str, str] | None = None) -> Iterator[None]:
    """Runs a command over and over beside, in a session of its own.

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
        """Ends the command with all that it started, and waits for that."""
        with self._lock:
            self._ending = True
            if self._process is not None and self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        self.join()


@contextlib.contextmanager
def pinned() -> Iterator[None]:
    """Ties this thread, which is the load generator, to the last core that it may use."""
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
    """The disturbances of these names, each to be entered around a block.

    Args:
        names: Of `DISTURBANCES`.
        imports: The command that imports what a server imports.
        environment: Of that command.
        second: The server beside, where `IDLE_SERVER` is among them.
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
