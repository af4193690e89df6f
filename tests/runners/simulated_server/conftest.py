"""Starts simulated servers as real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import yaml

from runners.simulated_server.profile import PROFILES

MODEL = "moonshotai/Kimi-K2.5"
BODIES = Path(__file__).parents[2] / "data" / "bodies" / "0.5.23-cpu"


def _speculation(steps, topk=1, draft_tokens=None, algorithm="EAGLE3"):
    return (
        *("--speculative-algorithm", algorithm, "--speculative-draft-model-path", "draft"),
        *("--speculative-num-steps", str(steps), "--speculative-eagle-topk", str(topk)),
        *("--speculative-num-draft-tokens", str(draft_tokens or steps + 1)),
    )


def _free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@dataclass
class Served:
    """A process, its log and a client."""

    process: subprocess.Popen
    log_path: Path
    port: int
    client: httpx.Client = field(repr=False)

    @property
    def log(self):
        return self.log_path.read_text()

    def wait_ready(self, timeout=30.0):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log[-2000:]
            with suppress(httpx.TransportError):
                if self.client.get("/health").status_code == 200:
                    return self
            time.sleep(0.02)
        raise AssertionError(f"not ready: {self.log[-2000:]}")

    def wait_log(self, text, timeout=30.0):
        deadline = time.monotonic() + timeout
        while text not in self.log:
            assert time.monotonic() < deadline, self.log[-2000:]
            time.sleep(0.02)

    def generate(self, prompt="Write a poem about the sea.", tokens=32, **more):
        sampling = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}
        body = {"text": prompt, "sampling_params": sampling, **more}
        return self.client.post("/generate", json=body)

    def exit_status(self, timeout=30.0):
        return self.process.wait(timeout)


@pytest.fixture(scope="session")
def kimi():
    """The shipped profile's data, as YAML has it."""
    return yaml.safe_load((PROFILES / "kimi.yaml").read_text())


@pytest.fixture(scope="session")
def quick_profile(kimi, tmp_path_factory):
    """The Kimi machine without noise, up at once."""
    data = dict(kimi, noise={"launch": 0.0, "block": 0.0, "prompt": 0.0})
    data["startup"] = dict.fromkeys(kimi["startup"], 0.0)
    path = tmp_path_factory.mktemp("profile") / "quick.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture(scope="module")
def start(quick_profile, tmp_path_factory):
    """Starts a server; everything that was started is gone at the end of the module."""
    started = []

    def _start(*flags, env=None, scale=50.0, profile=quick_profile, port=None):
        port = port or _free_port()
        log_path = tmp_path_factory.mktemp("server") / "log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("TUNER_", "NCCL"))}
        environment |= {"TUNER_SIM_PROFILE": str(profile), "TUNER_SIM_TIME_SCALE": str(scale)}
        environment |= env or {}
        command = [sys.executable, "-m", "runners.simulated_server", "--model-path", MODEL]
        with log_path.open("w") as log:
            process = subprocess.Popen(
                [*command, "--port", str(port), *flags],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0)
        served = Served(process, log_path, port, client)
        started.append(served)
        return served

    yield _start
    for served in started:
        served.client.close()
        with suppress(ProcessLookupError):
            os.killpg(served.process.pid, signal.SIGKILL)
        served.process.wait(10)


@pytest.fixture(scope="session")
def speculation():
    """Builds the flags of a speculating server from steps, topk and draft tokens."""
    return _speculation


@pytest.fixture(scope="session")
def free_port():
    """Finds a free port."""
    return _free_port


@pytest.fixture(scope="session")
def recorded():
    """Reads a body that the real server gave."""
    return lambda name: (BODIES / name).read_text()
