"""Simulated servers as processes, and engines in this process."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import yaml

from runners.simulated_server.engine.cost import CostModel
from runners.simulated_server.engine.engine import Engine
from runners.simulated_server.engine.profile import PROFILES, Noise, NoiseSource, load_profile
from runners.simulated_server.engine.request import make_request
from search_spaces.configuration import Configuration

from .walk import facts_of

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
    """Data of the shipped profile `kimi`."""
    return yaml.safe_load((PROFILES / "kimi.yaml").read_text())


@pytest.fixture(scope="session")
def quick_profile(kimi, tmp_path_factory):
    """The Kimi machine without noise and with a start-up of 0 s."""
    data = dict(kimi, noise={"launch": 0.0, "block": 0.0, "prompt": 0.0})
    data["startup"] = dict.fromkeys(kimi["startup"], 0.0)
    path = tmp_path_factory.mktemp("profile") / "quick.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture(scope="module")
def start(quick_profile, tmp_path_factory):
    """Start servers; all of them end with the module."""
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
    """Make the flags of a server from steps, topk and draft tokens."""
    return _speculation


@pytest.fixture(scope="session")
def free_port():
    """Find a free port."""
    return _free_port


@pytest.fixture(scope="session")
def recorded():
    """Read a recorded body of the real server."""
    return lambda name: (BODIES / name).read_text()


class _Jump(selectors.SelectSelector):
    """Advances the clock instead of waiting."""

    loop = None

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("all tasks wait without a timeout")
        if not ready:
            self.loop.now += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while all tasks wait.

    Adding to `now` simulates work that blocks the process.
    """

    def __init__(self):
        self.now = 1000.0
        selector = _Jump()
        super().__init__(selector)
        selector.loop = self

    def time(self):
        return self.now


@dataclass
class _Lines:
    """A log that keeps its lines."""

    lines: list[str] = field(default_factory=list)

    def main(self, message):
        self.lines.append(message)

    scheduler = main


@dataclass
class _Seen:
    """A client's times of one request, in simulated milliseconds."""

    request: object
    ttft: float
    decode: float
    ended: float


class _Bench:
    """An engine and its clients in a separate event loop."""

    def __init__(self, configuration=None, scale=8.0, profile=None, hooks=None, **values):
        configuration = configuration or Configuration()
        profile = profile or load_profile("kimi")
        asked = configuration.speculation
        flags = SimpleNamespace(
            values=values,
            num_steps=asked.num_steps or 0,
            topk=asked.topk or 0,
            num_draft_tokens=asked.num_draft_tokens or 0,
            max_running_requests=values.get("max_running_requests", 1024),
        )
        self.log = _Lines()
        self.scale = scale
        self.engine = Engine(
            profile,
            CostModel(profile, facts_of(configuration)),
            flags,
            NoiseSource(Noise(), 0, "launch"),
            time_scale=scale,
            log=self.log,
            hooks=hooks,
        )
        self._random = random.Random(0)
        self._numbers = itertools.count()

    def run(self, clients):
        """Run a coroutine function of this bench concurrently with the engine."""

        async def both():
            serving = asyncio.create_task(self.engine.run())
            try:
                async with asyncio.timeout(60):
                    return await clients(self)
            finally:
                serving.cancel()

        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            return runner.run(both())

    def request(self, tokens=64, prompt=None, **more):
        loop = asyncio.get_running_loop()
        ids = prompt or [self._random.randrange(1 << 40) for _ in range(200)]
        name = f"r{next(self._numbers)}"
        return make_request(name, ids, tokens, arrived=loop.time(), streaming=True, **more)

    async def ask(self, request):
        """Submit a request and wait for its end."""
        loop = asyncio.get_running_loop()
        self.engine.submit(request)
        first = None
        while request.finish is None:
            request.progress.clear()
            await request.progress.wait()
            first = first or loop.time()
        ended = loop.time()
        in_ms = 1000.0 * self.scale
        return _Seen(
            request, (first - request.arrived) * in_ms, (ended - first) * in_ms, ended * in_ms
        )

    async def closed_loop(self, clients, requests, tokens=64, pause_s=0.0):
        """Run clients that pause between an answer and the next request; return all times."""
        seen = []

        async def client():
            for _ in range(requests):
                seen.append(await self.ask(self.request(tokens)))
                await asyncio.sleep(pause_s)

        await asyncio.gather(*(client() for _ in range(clients)))
        return seen


@pytest.fixture(scope="session")
def new_bench():
    """Make an engine on a virtual clock, with clients that do not use HTTP."""
    return _Bench
