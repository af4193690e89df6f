"""Start, ask and stop the SGLang servers of `first_token.py`."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import first_token_probe as probe
import psutil
import yaml

ANSWER_TOKENS = 32
OTHERS_LIMIT_S = 45.0
"""Once one server is ready, the others have this long."""

EAGLE = (
    *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "{models}/draft"),
    *("--speculative-num-steps", "2", "--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "3", "--speculative-draft-load-format", "dummy"),
)
SERVERS: dict[str, tuple[tuple[str, ...], float]] = {
    "eagle": (EAGLE, 5.0),
    "plain": ((), 1.5),
    "eagle-no-overlap": ((*EAGLE, "--disable-overlap-schedule"), 1.0),
    "eagle-sleep-on-idle": ((*EAGLE, "--sleep-on-idle"), 0.7),
    "plain-prefill-graph": (("--cuda-graph-bs-prefill", "128", "256"), 0.7),
}
"""Flags of each server, and its share of the time."""

SMALLER = {"max-total-tokens": 16384, "max-running-requests": 4, "cuda-graph-bs-decode": [1, 2, 4]}
"""In place of the study's: several servers share the GPU's memory, and one user asks."""


@dataclass
class Server:
    """A running SGLang.

    Attributes:
        name: Key of `SERVERS`.
        port: Of HTTP.
        process: The launcher, leader of its process group.
        trace: File that the probe writes.
        switches: File that the probe reads.
    """

    name: str
    port: int
    process: subprocess.Popen[bytes]
    trace: Path
    switches: Path
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    def send_signal(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return

    def call(self, path: str, timeout: float = 30.0) -> None:
        address = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(address, timeout=timeout) as reply:
            reply.read()

    def flush(self) -> None:
        """Empty the prefix cache and PyTorch's allocator; wait for the last forward before."""
        self.call("/flush_cache?timeout=5")

    def set_switch(self, offset: int, *, on: bool) -> None:
        with self.switches.open("r+b") as file:
            file.seek(offset)
            file.write(bytes([on]))

    def scheduler(self) -> int:
        """Return the process id of the scheduler."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if "scheduler" in " ".join(child.cmdline()):
                return child.pid
        raise RuntimeError(f"{self.name} has no scheduler process")

    def others(self) -> list[int]:
        """Return the process ids of everything but the scheduler."""
        scheduler = self.scheduler()
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [self.process.pid, *(c.pid for c in children if c.pid != scheduler)]

    def disconnect(self) -> None:
        """Ask on a new connection from now on: a server ends those that were idle for 5 s."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def ask(self, prompt: list[int], rid: str) -> dict[str, float]:
        """Send one request and return when it was sent, and when its tokens came."""
        body = json.dumps(
            {
                "input_ids": prompt,
                "rid": rid,
                "stream": True,
                "sampling_params": {
                    "temperature": 0,
                    "max_new_tokens": ANSWER_TOKENS,
                    "ignore_eos": True,
                },
            }
        )
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self._connection.connect()
        sent = time.perf_counter()
        self._connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
        reply = self._connection.getresponse()
        first = 0.0
        meta: dict[str, Any] = {}
        while line := reply.readline():
            if not line.startswith(b"data:") or line.startswith(b"data: [DONE]"):
                continue
            first = first or time.perf_counter()
            chunk = json.loads(line[5:])
            if "meta_info" not in chunk:
                raise RuntimeError(f"{self.name} answered {line[:300]!r}")
            meta = chunk["meta_info"]
        last = time.perf_counter()
        reply.read()
        return {
            "sent_at": sent,
            "first_at": first,
            "ended_at": last,
            "ttft_s": first - sent,
            "rest_s": last - first,
            "tokens": meta["completion_tokens"],
            "verify_calls": meta.get("spec_verify_ct") or 0,
        }


def server_flags(models: Path, study: Path) -> list[str]:
    """Return the command-line flags of the study's server."""
    flags = yaml.safe_load(study.read_text())["server"]["flags"]
    words = ["--model-path", str(models / "target"), "--host", "127.0.0.1", "--enable-metrics"]
    flags |= {name: value for name, value in SMALLER.items() if name in flags}
    for name, value in flags.items():
        if name == "speculative-draft-load-format" or value is False:
            continue
        words.append(f"--{name}")
        if value is not True:
            words += [str(one) for one in (value if isinstance(value, list) else [value])]
    return words


def start(name: str, number: int, models: Path, flags: list[str], work: Path) -> Server:
    """Start one server with the probe in it."""
    trace, switches = work / f"{name}.jsonl", work / f"{name}.switches"
    trace.touch()
    switches.write_bytes(b"\x01\x01")
    extra = [word.replace("{models}", str(models)) for word in SERVERS[name][0]]
    base = [word for word in flags if word != "--disable-prefill-cuda-graph"]
    if "--cuda-graph-bs-prefill" not in extra:
        base = flags
    port = 30000 + 200 * number
    python = os.environ.get("TUNER_SGLANG_PYTHON", sys.executable)
    environment = os.environ | {
        probe.TRACE_VARIABLE: str(trace),
        probe.SWITCHES_VARIABLE: str(switches),
        "PYTHONPATH": f"{work / 'plugin'}:{os.environ.get('PYTHONPATH', '')}",
        "PYTHONUNBUFFERED": "1",
        "SGLANG_ENABLE_JIT_DEEPGEMM": "0",
        "HF_HUB_OFFLINE": "1",
    }
    if "--speculative-algorithm" in extra:
        environment["SGLANG_SIMULATE_ACC_LEN"] = "2.3"
    with (work / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(python, "-m", "sglang.launch_server", *base, *extra),
                *("--port", str(port), "--nccl-port", str(28000 + 10 * number)),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    return Server(name, port, process, trace, switches)


def write_plugin(folder: Path) -> None:
    """Make a folder from which SGLang loads the probe."""
    about = folder / "first_token_probe-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("first_token_probe.py"), folder)
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: first_token_probe\nVersion: 1.0\n"
    )
    (about / "entry_points.txt").write_text(
        "[sglang.srt.plugins]\nfirst_token_probe = first_token_probe:register\n"
    )


def wait_until_ready(servers: list[Server], deadline: float) -> list[Server]:
    """Return the servers that answer, stopped; end the others."""
    waiting: list[Server] = list(servers)
    ready: list[Server] = []
    while waiting and time.monotonic() < deadline:
        for server in list(waiting):
            if server.process.poll() is not None:
                print(f"{server.name}: ended with {server.process.returncode}", flush=True)
                waiting.remove(server)
                continue
            try:
                server.call("/model_info", timeout=2)
                server.ask([5, 6, 7, 8], f"ready-{server.name}")
            except (OSError, http.client.HTTPException):
                server.disconnect()
                continue
            waiting.remove(server)
            if not ready:
                deadline = min(deadline, time.monotonic() + OTHERS_LIMIT_S)
            ready.append(server)
            server.send_signal(signal.SIGSTOP)
            print(f"{server.name}: ready", flush=True)
        time.sleep(0.3)
    for server in waiting:
        print(f"{server.name}: not ready in time", flush=True)
        end([server])
    return [server for server in servers if server in ready]


def end(servers: list[Server]) -> None:
    """End servers with all their processes."""
    for server in servers:
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGCONT)
    time.sleep(1.0)
    for server in servers:
        server.send_signal(signal.SIGKILL)
        server.process.wait()
