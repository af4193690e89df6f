"""A server that a shell command starts, as a user would."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import httpx
import psutil

from runners.sglang.readback import effective_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 400
"""About 20 s on a quiet machine."""


OF_ONE_START = {"port", "random_seed", "startup_time", "internal_states", "launch_command"}
"""Fields of `/server_info` that differ between two starts of the same server."""


def resolved(info: dict[str, Any]) -> dict[str, Any]:
    """Fields of `/server_info` that are equal in all starts of the same server."""
    return {name: value for name, value in info.items() if name not in OF_ONE_START}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def started(
    tuner: Any, line: str, port: int, *, api_key: str = ""
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """`/server_info` and the environment of the scheduler. SIGTERM ends the server."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    log_file = tuner.folder / "by-hand.log"
    with log_file.open("wb") as log:
        server = subprocess.Popen(
            ["sh", "-c", f"exec {line}"],
            cwd=tuner.folder,
            # SGLang's processes rename themselves, which would overwrite `/proc/PID/environ`.
            env={**tuner.env, "SPT_NOENV": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_S
        while True:
            assert server.poll() is None, log_file.read_text()[-2000:]
            assert time.monotonic() < deadline
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=30).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        info = httpx.get(f"http://127.0.0.1:{port}/server_info", headers=headers, timeout=60).json()
        leader = psutil.Process(server.pid)
        yield info, effective_environment([leader, *leader.children(recursive=True)])
    finally:
        server.terminate()
        code = server.wait(timeout=120)
    assert code == 0  # the shell became the server, so no process is left
