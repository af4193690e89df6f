"""Simulated servers without noise and with a start-up of 0 s."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from runners.process.ports import free_port_block
from runners.simulated_server.engine.profile import PROFILES

from .exchange import ask, get

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
TIME_SCALE = 10.0
START_S = 120.0


@dataclass(frozen=True, slots=True)
class Simulated:
    """A running simulated server.

    Attributes:
        process: The process.
        port: Port of the server.
        log_path: Path of the log.
    """

    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Text of the log."""
        return self.log_path.read_text()

    def wait_ready(self) -> Simulated:
        """Wait until `/health` is 200; return the server."""
        deadline = time.monotonic() + START_S
        while True:
            assert self.process.poll() is None, self.log[-2000:]
            assert time.monotonic() < deadline, self.log[-2000:]
            with contextlib.suppress(OSError):
                if ask(self.url, get("health", "/health")).status == 200:
                    return self
            time.sleep(0.05)


def quick_profile(folder: Path) -> Path:
    """Write the Kimi profile without noise and with a start-up of 0 s."""
    data = yaml.safe_load((PROFILES / "kimi.yaml").read_text())
    data["noise"] = dict.fromkeys(data["noise"], 0.0)
    data["startup"] = dict.fromkeys(data["startup"], 0.0)
    path = folder / "quick.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@contextlib.contextmanager
def simulated(
    flags: Sequence[str],
    folder: Path,
    env: Mapping[str, str] | None = None,
    port: int | None = None,
    program: Sequence[str] = ("-m", "runners.simulated_server"),
) -> Iterator[Simulated]:
    """Start a server, and end it afterwards.

    Args:
        flags: Command line; its port is replaced.
        folder: Folder for profile and log.
        env: Further variables.
        port: Port; a free one by default.
        program: Arguments of the interpreter.
    """
    port = port or free_port_block()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TUNER_", "NCCL", "SGLANG"))}
    kept |= {
        "TUNER_SIM_PROFILE": str(quick_profile(folder)),
        "TUNER_SIM_TIME_SCALE": str(TIME_SCALE),
        "PYTHONPATH": str(ROOT),
    }
    log_path = folder / f"simulated-{port}.log"
    argv = [sys.executable, *program, *flags, "--port", str(port)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            argv,
            env=kept | dict(env or {}),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Simulated(process, port, log_path)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
