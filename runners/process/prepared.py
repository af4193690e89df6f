"""Whether a process uses a GPU, seen from outside it."""

from __future__ import annotations

import fcntl
import json
import re
import socket
import subprocess
import time
import uuid
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from runners.process.processes import MARK, ServerProcess, marks

if TYPE_CHECKING:
    from runners.base import LaunchCommand


CUDA_FILE = "/dev/nvidia-uvm"
"""Open once CUDA is initialised (`cuInit`), which takes no GPU memory yet; not in a process that
only asks the driver (NVML)."""

ROCM_FILE = "/dev/kfd"
"""Open in a process that uses ROCm."""

_QUERY = ("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
_LINE = re.compile(r"\s*(\d+)\s*,\s*(\d*)")
_ANSWER_S = 30.0


def has_open(pid: int, file: str) -> bool:
    """Whether a process has the file open; where that can't be seen, it may have."""
    try:
        files = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return psutil.pid_exists(pid)
    for link in files:
        with suppress(OSError):
            if str(link.readlink()) == file:
                return True
    return False


def gpu_memory_mb(pid: int) -> float | None:
    """GPU memory that a process holds, as NVIDIA's driver says; `None` without its tool.

    In a container the tool may list the host's numbers of processes, or none: 0 is no proof there.
    A process that is listed without an amount (MIG) counts as 1 MB, as it has a CUDA context.
    """
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [match for line in done.stdout.splitlines() if (match := _LINE.match(line))]
    return sum(float(row[2] or 1) for row in rows if int(row[1]) == pid)


PREPARE_VARIABLE = "TUNER_PREPARE_NEXT"
"""Set to 1, the next launch's imports are made while the present one starts up."""

_SCRIPT = Path(__file__).with_name("warm_launcher.py")
_MODULE = ("-m", "sglang.launch_server")

_READ_LATE = ("NCCL_", "TUNER_")
"""Beginnings of variables that are read by schedulers alone, or once the launcher runs: NCCL is
first used in schedulers (0.5.17, 0.5.23), which are given the launcher's environment as it is when
they are started, and the tuner's plugin is loaded as they are."""

_PARK_S = 60.0
"""Real seconds to let the imports end before a measurement; they began with the start-up."""

_REST_S = 0.5
"""It is watched at least so long after its imports, to see that it does nothing."""

_REST_SHARE = 0.01
"""Of a core: more is work that would stand beside a measurement."""

_TICK_S = 0.03
"""The kernel tells processor time in hundredths of a second."""


class PreparedLauncher:
    """One launcher that imports, or has imported, and waits for its command."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        channel: socket.socket,
        python: str,
        environ: dict[str, str],
        log: Path,
    ) -> None:
        self.popen = popen
        self._channel = channel
        self._python = python
        self._environ = environ
        self._log = log
        self._said = b""
        # Also where nobody discards it: at the end of the tuner.
        self._end = weakref.finalize(self, _end, popen, channel, log)

    @classmethod
    def start(cls, command: LaunchCommand, folder: Path) -> PreparedLauncher | None:
        """Begins to import for a launch like `command`; `None` where it cannot be.

        Args:
            command: Gives interpreter and environment.
            folder: Where its output goes until it has a launch's log.
        """
        if command.argv[1:3] != _MODULE:
            return None
        environ = _unmarked(command)
        log = folder / f".prepared-{uuid.uuid4().hex}.log"
        ours, its = socket.socketpair()
        try:
            with its, log.open("w+b") as output:
                # Held by whoever has it open: what a killed tuner left is told from it.
                with suppress(OSError):
                    fcntl.flock(output, fcntl.LOCK_SH | fcntl.LOCK_NB)
                popen = subprocess.Popen(
                    (command.argv[0], "-c", _SCRIPT.read_text("utf-8"), str(its.fileno())),
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(its.fileno(),),
                )
        except BaseException as error:
            ours.close()
            log.unlink(missing_ok=True)
            if isinstance(error, OSError):
                return None  # a machine that has run out of something: the launch itself says so
            raise
        return cls(popen, ours, command.argv[0], environ, log)

    def fits(self, command: LaunchCommand) -> bool:
        """Whether it can become this launch's server."""
        if command.argv[:3] != (self._python, *_MODULE) or not self._lives():
            return False
        changed = self._changed(_unmarked(command))
        return all(name.startswith(_READ_LATE) for name in changed)

    def park(self, wait_s: float = _PARK_S) -> str | None:
        """Waits until it has imported and does nothing, so that it may stand by a measurement.

        Returns:
            Why it may not: one that holds a GPU takes memory from the server that is measured, and
            one that works takes time.
        """
        deadline = time.monotonic() + wait_s
        try:
            while not self._said.endswith(b"\n"):
                self._channel.settimeout(max(0.01, deadline - time.monotonic()))
                if not (part := self._channel.recv(4096)):
                    return "its imports failed"  # the launch itself will say why
                self._said += part
            self._channel.settimeout(None)
        except TimeoutError:
            return f"its imports did not end within {wait_s:g} s of the server's"
        except OSError as error:
            return str(error)
        said = json.loads(self._said)
        return self._gpu(said["contexts"]) or self._work(said)

    def _gpu(self, contexts: int | None) -> str | None:
        """What of a GPU it holds that the server which is measured would be without.

        SGLang's imports ask torch whether there is CUDA, and this initialises it (`cuInit`; 0.5.17
        and 0.5.23). Memory is taken by a context only.
        """
        if contexts is None:
            return "its imports begin to use a GPU, and the driver does not say how"
        if contexts > 0:
            return f"its imports made {contexts} CUDA context(s), which hold GPU memory"
        if has_open(self.popen.pid, ROCM_FILE):
            return "its imports begin to use a GPU (ROCm)"
        if has_open(self.popen.pid, CUDA_FILE) and (mb := gpu_memory_mb(self.popen.pid)):
            return f"its imports hold {mb:g} MB of GPU memory"
        return None

    def _work(self, said: dict[str, Any]) -> str | None:
        """What it has worked since its imports ended."""
        while (passed := time.monotonic() - said["at"]) < _REST_S:
            time.sleep(_REST_S - passed)
        try:
            times = psutil.Process(self.popen.pid).cpu_times()
        except psutil.Error as error:
            return str(error)
        used = times.user + times.system - said["cpu_s"]
        if used <= _TICK_S + _REST_SHARE * passed:
            return None
        return f"its imports left work behind: {used:.2f} s of a core in {passed:.1f} s"

    def take_log(self, log: Path) -> bool:
        """Lets its output, that of its imports included, be a launch's log; whether it could."""
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            self._log.replace(log)
        except OSError:
            return False
        return True

    def process(self, command: LaunchCommand, *, mark: str, port: int) -> ServerProcess:
        """It, as the process of a launch; it waits on until `become`."""
        environ = command.environment() | dict(marks(mark))
        return ServerProcess.of(self.popen, mark=mark, port=port, environ=environ)

    def become(self, command: LaunchCommand, process: ServerProcess) -> None:
        """Makes it the server of the launch. One that has died meanwhile is found dead."""
        self._end.detach()
        told = {
            "argv": command.argv[len(_MODULE) + 1 :],
            # Only what is other: its imports may have set variables, too.
            "environ": self._changed(process.environ()),
        }
        with self._channel, suppress(OSError):
            self._channel.sendall(json.dumps(told).encode() + b"\n")

    def discard(self) -> None:
        """Ends it, unless it has become a server. Idempotent."""
        self._end()

    def _changed(self, wanted: dict[str, str]) -> dict[str, str | None]:
        """What of `wanted` is other than it was started with; `None`: not to be there."""
        names = sorted(self._environ.keys() | wanted.keys())
        return {n: wanted.get(n) for n in names if self._environ.get(n) != wanted.get(n)}

    def _lives(self) -> bool:
        return self.popen.poll() is None


def _unmarked(command: LaunchCommand) -> dict[str, str]:
    """The environment of a server that is of no launch yet."""
    return {n: v for n, v in {**command.environment(), **dict(marks(""))}.items() if n != MARK}


def _end(popen: subprocess.Popen[bytes], channel: socket.socket, log: Path) -> None:
    channel.close()
    popen.kill()
    popen.wait()
    log.unlink(missing_ok=True)


class NextLauncher:
    """Keeps at most one prepared launcher for a runner. Owned by the runner's thread.

    Args:
        wanted: Whether any is to be prepared.

    Attributes:
        given_up: Why none is prepared any more.
    """

    def __init__(self, *, wanted: bool) -> None:
        self.wanted = wanted
        self.given_up: str | None = None
        self._held: PreparedLauncher | None = None
        self._cleared: set[Path] = set()

    @property
    def pid(self) -> int | None:
        """Of the prepared launcher; `None` while there is none."""
        return None if self._held is None else self._held.popen.pid

    def take(self, command: LaunchCommand, log: Path) -> PreparedLauncher | None:
        """The prepared launcher, if it can be this launch's; its output is the log then."""
        held, self._held = self._held, None
        if held is None:
            return None
        if held.fits(command) and held.take_log(log):
            return held
        held.discard()
        return None

    def prepare(self, command: LaunchCommand, folder: Path) -> None:
        """Begins to import for a launch like this one, and clears what a killed tuner left."""
        if folder not in self._cleared:
            _clear_leftovers(folder)
            self._cleared.add(folder)
        if self.wanted and self._held is None:
            self._held = PreparedLauncher.start(command, folder)

    def park(self) -> None:
        """Returns once nothing of it works or holds GPU memory, so that others may be measured."""
        if self._held is not None and (why := self._held.park()) is not None:
            self.discard()
            # The next would be no better.
            self.wanted, self.given_up = False, why

    def discard(self) -> None:
        """Ends what is prepared. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            held.discard()


def _clear_leftovers(folder: Path) -> None:
    """Removes the output of prepared launchers that ended with a killed tuner."""
    for log in folder.glob(".prepared-*.log"):
        with suppress(OSError), log.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            log.unlink()
