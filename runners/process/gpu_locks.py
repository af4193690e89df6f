"""One tuner per GPU: locks that the kernel lets go of, however their holder dies.

Each device has a file in a folder of this machine, and whoever measures on it holds an exclusive
`flock` on that file. The kernel drops it with its holder, `kill -9` included, so nothing is ever
left to clean up: the files stay, and say who had them last, and with which launch. The server of
that launch may live on without its tuner; whoever comes next looks for it.

Tuners in containers of their own see each other where `TUNER_LOCKS` names a folder they share.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from runners.process.processes import marked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

FOLDER_VARIABLE: Final = "TUNER_LOCKS"
"""Names another folder for the locks."""

# Not the user's own temporary folder: all users of the machine must agree on it.
_FOLDER: Final = "/tmp/sglang-tuner-locks"  # noqa: S108 - sticky, and no file in it is followed

_POLL_S: Final = 0.5

_MOST_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a device.

    Attributes:
        pid: The tuner's process.
        study: What it measures.
        since: When it began, as local time.
        storage: The database of the study, without a password.
        launch: The mark of the launch that it began last; empty before the first.
    """

    pid: int
    study: str
    since: str
    storage: str = ""
    launch: str = ""

    def __str__(self) -> str:
        return f"a tuner (pid {self.pid}, study {self.study}, since {self.since})"


class DeviceBusyError(Exception):
    """Another tuner has a device; the message says which and who."""

    def __init__(self, device: str, holder: Holder | None) -> None:
        who = "another tuner" if holder is None else str(holder)
        super().__init__(f"{device} is in use by {who}: each would spoil the other's figures")
        self.device = device
        self.holder = holder


class LeftServerError(DeviceBusyError):
    """A device is free of tuners, but not of the server that a killed one left."""

    def __init__(self, device: str, holder: Holder, pids: Sequence[int]) -> None:
        Exception.__init__(
            self,
            f"{device} is still in use by the server (processes {', '.join(map(str, pids))}) that "
            f"study {holder.study} left when its tuner was killed: it would spoil the figures. "
            f"`tuner resume --study {shlex.quote(holder.study)} --storage "
            f"{shlex.quote(holder.storage)}` ends it and goes on with that study; `kill -9` with "
            "these numbers only ends it",
        )
        self.device = device
        self.holder = holder


class DeviceLocks:
    """Exclusive use of some devices. A context manager: leaving it lets them go.

    Args:
        devices: `Runner.devices`. Taken in sorted order, so that two who wait cannot wait for
            each other.
        study: Shown to whoever finds them taken.
        storage: Its database, without a password: with the name it says which study this is, whose
            own left servers are no hindrance, since resuming it ends them.
        waiting: Called once per device that is in use, and then it is waited for; without it that
            is an error.

    Raises:
        DeviceBusyError: On entering, if a device is in use.
        LeftServerError: On entering, if a server that another study left is on it; waiting would
            not help.
        OSError: On entering, if the folder cannot be used.
    """

    def __init__(
        self,
        devices: Sequence[str],
        study: str,
        storage: str = "",
        *,
        waiting: Callable[[DeviceBusyError], None] | None = None,
    ) -> None:
        self._devices = tuple(sorted(devices))
        self._study = study
        self._storage = storage
        self._since = ""
        self._waiting = waiting
        self._held: list[int] = []

    def __enter__(self) -> Self:
        try:
            for device in self._devices:
                self._take(device)
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Lets all of them go. Idempotent."""
        while self._held:
            os.close(self._held.pop())

    def announce(self, launch: str) -> None:
        """Writes down the mark of a launch before its server is started on these devices."""
        for file in self._held:
            self._write(file, launch)

    def _take(self, device: str) -> None:
        path = folder() / f"{device.replace('/', '_')}.lock"
        told = False
        while True:
            file = _open(path)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy = DeviceBusyError(device, _holder(file))
                os.close(file)
                if self._waiting is None:
                    raise busy from None
                if not told:
                    self._waiting(busy)
                    told = True
                time.sleep(_POLL_S)
                continue
            except BaseException:
                os.close(file)
                raise
            if _is_still(path, file):
                break
            os.close(file)  # somebody cleaned the folder up between opening and locking
        self._held.append(file)
        launch = ""
        last = _holder(file)
        if last is not None and last.launch and (pids := marked(last.launch)):
            if (last.study, last.storage) != (self._study, self._storage):
                raise LeftServerError(device, last, pids)
            launch = last.launch  # until this study has ended it
        self._since = self._since or time.strftime("%Y-%m-%d %H:%M:%S")
        self._write(file, launch)

    def _write(self, file: int, launch: str) -> None:
        holder = Holder(os.getpid(), self._study, self._since, self._storage, launch)
        text = json.dumps(asdict(holder)).encode()
        # The lock holds also where the disk is full and nothing can be said about it.
        with contextlib.suppress(OSError):
            os.pwrite(file, text, 0)
            os.ftruncate(file, len(text))


def folder() -> Path:
    """Where the locks of this machine are; made if need be, for all users."""
    path = Path(os.environ.get(FOLDER_VARIABLE) or _FOLDER)
    with contextlib.suppress(FileExistsError):
        path.mkdir(parents=True)
        path.chmod(0o1777)
    return path


def _open(path: Path) -> int:
    """Opens a lock's file for all users; another user's is opened, never made anew.

    Linux refuses `O_CREAT` on another user's file in a sticky folder (fs.protected_regular), so a
    file that exists is opened without it. Links are not followed: the folder is everybody's.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        try:
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            continue
        os.fchmod(file, 0o666)  # whatever the user's umask
        return file


def _is_still(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _holder(file: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(file, _MOST_BYTES, 0)))
    except (ValueError, TypeError):
        return None  # it has just been taken
