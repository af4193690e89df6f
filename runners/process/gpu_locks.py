"""Device locks: at most one tuner measures on a GPU.

Each device has a file in a folder of this machine. A tuner that measures holds an exclusive `flock`
on that file. The kernel releases the lock when its holder dies, also after `kill -9`. The files
stay and name the last holder and its last launch, so that the next tuner finds a server that
outlived its tuner.

Tuners in different containers see each other if `TUNER_LOCKS` names a shared folder.
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
"""Variable that names another folder for the locks."""

# A fixed folder, because all users of the machine must share it.
_FOLDER: Final = "/tmp/sglang-tuner-locks"  # noqa: S108 - sticky, and links are not followed

_POLL_S: Final = 0.5

_MOST_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Holder:
    """The tuner that holds a device.

    Attributes:
        pid: Process of the tuner.
        study: Name of the measured study.
        since: Local time of the lock.
        storage: Database of the study, without a password.
        launch: Mark of the last launch; empty before the first.
    """

    pid: int
    study: str
    since: str
    storage: str = ""
    launch: str = ""

    def __str__(self) -> str:
        return f"a tuner (pid {self.pid}, study {self.study}, since {self.since})"


class DeviceBusyError(Exception):
    """Another tuner holds a device; the message names both."""


class LeftServerError(DeviceBusyError):
    """The server of a killed tuner still uses a device."""

    def __init__(self, device: str, holder: Holder, pids: Sequence[int]) -> None:
        super().__init__(
            f"{device} is still in use by the server (processes {', '.join(map(str, pids))}) of "
            f"study {holder.study}, whose tuner was killed. Run `tuner resume --study "
            f"{shlex.quote(holder.study)} --storage {shlex.quote(holder.storage)}` to stop the "
            f"server and continue the study, or `kill -9 {' '.join(map(str, pids))}`"
        )


class DeviceLocks:
    """Context manager that locks devices.

    Args:
        devices: Names from `ExclusiveDevices.devices`. Locked in sorted order, so that two waiting
            tuners cannot block each other.
        study: Name of the study, for the messages of other tuners.
        storage: Database of the study, without a password. A server that this same study left is
            no error, because resuming the study ends the server.
        waiting: Called once per busy device before waiting for it. `None`: raise an error.

    Raises:
        DeviceBusyError: On entering, if a device is in use.
        LeftServerError: On entering, if a server of another study still uses a device.
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
        """Release all devices. Idempotent."""
        while self._held:
            os.close(self._held.pop())

    def announce(self, launch: str) -> None:
        """Record the mark of a launch before its server starts."""
        for file in self._held:
            self._write(file, launch)

    def _take(self, device: str) -> None:
        path = folder() / f"{device.replace('/', '_')}.lock"
        reported = False
        while True:
            file = _open(path)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy = DeviceBusyError(
                    f"{device} is in use by {_holder(file) or 'another tuner'}; two tuners would "
                    "disturb each other's measurements"
                )
                os.close(file)
                if self._waiting is None:
                    raise busy from None
                if not reported:
                    self._waiting(busy)
                    reported = True
                time.sleep(_POLL_S)
                continue
            except BaseException:
                os.close(file)
                raise
            if _is_still(path, file):
                break
            os.close(file)  # the file was deleted between opening and locking
        self._held.append(file)
        launch = ""
        last = _holder(file)
        if last is not None and last.launch and (pids := marked(last.launch)):
            if (last.study, last.storage) != (self._study, self._storage):
                raise LeftServerError(device, last, pids)
            launch = last.launch  # until this study ends that server
        self._since = self._since or time.strftime("%Y-%m-%d %H:%M:%S")
        self._write(file, launch)

    def _write(self, file: int, launch: str) -> None:
        holder = Holder(os.getpid(), self._study, self._since, self._storage, launch)
        text = json.dumps(asdict(holder)).encode()
        # A full disk only loses the description; the lock still holds.
        with contextlib.suppress(OSError):
            os.pwrite(file, text, 0)
            os.ftruncate(file, len(text))


def folder() -> Path:
    """Folder of this machine's locks, created for all users."""
    path = Path(os.environ.get(FOLDER_VARIABLE) or _FOLDER)
    with contextlib.suppress(FileExistsError):
        path.mkdir(parents=True)
        path.chmod(0o1777)
    return path


def _open(path: Path) -> int:
    """Open a lock file, and create it for all users if it does not exist.

    Linux refuses `O_CREAT` on another user's file in a sticky folder (fs.protected_regular), so an
    existing file is opened without that flag. Links are not followed, since all users can write to
    the folder.
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
        os.fchmod(file, 0o666)  # the umask does not apply
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
        return None  # a new file
