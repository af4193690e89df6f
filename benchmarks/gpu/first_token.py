"""Find out why the first tokens of one SGLang server take one of two times, window by window.

    python benchmarks/gpu/first_token.py --folder FOLDER --output OUTPUT [--minutes 8]

FOLDER holds the models of `benchmarks/gpu/models.py`. TUNER_SGLANG_PYTHON names the interpreter
that has SGLang (default: the one that runs this script). Needs psutil and PyYAML; nvidia-ml-py adds
the GPU's clocks.

The script starts a few servers (`SERVERS`) together, stops all but one (SIGSTOP), and measures
each in windows of two seconds with one user. Each window has one condition (`CONDITIONS`); their
order is drawn anew in each cycle. `first_token_probe.py` times every prefill inside the scheduler.

OUTPUT receives `requests.csv` (one row per first token), `windows.csv` (one row per window, with
observations of CPU and GPU), `layers.csv` (host time of each layer's launch in each prefill),
`report.txt` (`first_token_report.py` prints it again) and the servers' logs.

The script changes no setting of the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

sys.path.insert(0, str(Path(__file__).parent))

import first_token_probe as probe
from first_token_cores import Burners, find_siblings, gpu_clocks, host_counters, scan_cores
from first_token_report import report
from first_token_servers import (
    SERVERS,
    Server,
    end,
    server_flags,
    start,
    wait_until_ready,
    write_plugin,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PROMPT_TOKENS = 128
WINDOW_S = 2.0
START_LIMIT_S = 150.0

CONDITIONS = {
    "base": "nothing is done; three windows per cycle",
    "flush": "/flush_cache before the window, as the tuner does: PyTorch's allocator is emptied",
    "flush_each": "/flush_cache before each request",
    "think17": "17 ms between an answer and the next request",
    "think200": "200 ms between an answer and the next request",
    "no_probes": "no fixed work before the prefill: the probes' own cost",
    "no_collector": "Python's garbage collector is off in the scheduler",
    "pin_fast": "scheduler alone on a core that is fast now, everything else on other cores",
    "pin_slow": "scheduler alone on the core that is slowest now",
    "pin_sibling": "scheduler alone on a core, a busy loop on the core's sibling",
    "pin_others": "scheduler alone on a core, busy loops on all others but three",
    "copying": "four processes copy memory on other cores",
    "polled_gpu": "nvidia-smi reads the clocks ten times a second",
    "frozen": "/freeze_gc was called before; only at a server's end",
}
BASES_PER_CYCLE = 3


class Sitting:
    """Windows of one server after another.

    Attributes:
        requests: Rows of all requests so far.
        windows: Rows of all windows so far.
    """

    def __init__(self, seed: int) -> None:
        self.requests: list[dict[str, Any]] = []
        self.windows: list[dict[str, Any]] = []
        self._draw = random.Random(seed)
        self._cores = sorted(os.sched_getaffinity(0))
        self._siblings: dict[int, int] = {}
        self._can_pin = len(self._cores) >= 4

    def look_for_siblings(self) -> dict[int, int]:
        """Find the pairs of cores that slow each other; all servers must be stopped."""
        self._siblings = find_siblings(self._cores)
        return self._siblings

    def measure(self, server: Server, deadline: float) -> None:
        """Run cycles of windows until the deadline, the last of them with a frozen collector."""
        server.send_signal(signal.SIGCONT)
        server.disconnect()
        for number in range(20):
            server.ask(self._prompt(), f"warm-{server.name}-{number}")
        while time.monotonic() < deadline - 4 * WINDOW_S:
            for condition in self._cycle():
                if time.monotonic() > deadline - 3 * WINDOW_S:
                    break
                self._try_window(server, condition)
        with contextlib.suppress(OSError):
            server.call("/freeze_gc")
        for _ in range(2):
            self._try_window(server, "frozen")
        server.send_signal(signal.SIGSTOP)

    def _try_window(self, server: Server, condition: str) -> None:
        try:
            self._window(server, condition)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            print(f"{server.name}, {condition}: {error!r}", flush=True)
            server.disconnect()
            time.sleep(1.0)

    def _cycle(self) -> list[str]:
        names = [name for name in CONDITIONS if name != "frozen"]
        if not self._can_pin:
            names = [name for name in names if not name.startswith("pin_")]
        if not self._siblings:
            names = [name for name in names if name != "pin_sibling"]
        if shutil.which("nvidia-smi") is None:
            names.remove("polled_gpu")
        names += ["base"] * (BASES_PER_CYCLE - 1)
        self._draw.shuffle(names)
        return names

    def _prompt(self) -> list[int]:
        return [self._draw.randrange(10, 1000) for _ in range(PROMPT_TOKENS)]

    def _window(self, server: Server, condition: str) -> None:
        window = len(self.windows)
        scheduler = server.scheduler()
        speeds = scan_cores(self._cores)
        if condition.startswith("flush"):
            server.flush()
        server.set_switch(probe.PROBES, on=condition != "no_probes")
        server.set_switch(probe.COLLECTOR, on=condition != "no_collector")
        pause = {"think17": 0.017, "think200": 0.2}.get(condition, 0.0)
        server.disconnect()
        with self._disturbance(server, condition, speeds) as pinned:
            before = host_counters(scheduler)
            began = time.monotonic()
            count = 0
            while time.monotonic() - began < WINDOW_S:
                rid = f"{server.name}-{window}-{count}"
                row = server.ask(self._prompt(), rid)
                self.requests.append(
                    {
                        "request": rid,
                        "server": server.name,
                        "window": window,
                        "condition": condition,
                        "number": count,
                        **row,
                    }
                )
                count += 1
                if condition == "flush_each":
                    server.flush()
                time.sleep(pause)
            clocks = gpu_clocks()
            after = host_counters(scheduler)
        self.windows.append(
            {
                "window": window,
                "server": server.name,
                "condition": condition,
                "pinned_to": pinned,
                "began_at": began,
                "requests": count,
                **{name: after[name] - before[name] for name in before},
                **clocks,
                "slowest_core": max(speeds, key=lambda core: speeds[core]),
                "core_spins_ms": " ".join(f"{1000 * speeds[core]:.3f}" for core in self._cores),
            }
        )

    def _disturbance(self, server: Server, condition: str, speeds: dict[int, float]) -> Disturbance:
        core = None
        burners: list[int] = []
        work = "spin"
        if condition == "pin_slow":
            core = max(speeds, key=lambda one: speeds[one])
        elif condition.startswith("pin_"):
            fastest = sorted(speeds, key=lambda one: speeds[one])[: max(2, len(speeds) // 2)]
            core = self._draw.choice(fastest)
            if condition == "pin_sibling":
                core = self._draw.choice(sorted(self._siblings))
                burners = [self._siblings[core]]
            elif condition == "pin_others":
                burners = [one for one in self._cores if one != core][3:]
        elif condition == "copying":
            burners, work = self._cores[-4:], "copy"
        return Disturbance(
            server,
            core,
            Burners(burners, work),
            self._cores,
            polled=condition == "polled_gpu",
        )


class Disturbance:
    """Placement and neighbours during one window; leaving the block restores both."""

    def __init__(
        self,
        server: Server,
        core: int | None,
        burners: Burners,
        cores: list[int],
        *,
        polled: bool,
    ) -> None:
        self._server = server
        self._core = core
        self._burners = burners
        self._cores = cores
        self._polled = polled
        self._smi: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> str:
        if self._core is not None:
            away = {core for core in self._cores if core != self._core}
            self._place({self._core}, away)
        self._burners.start()
        if self._polled:
            self._smi = subprocess.Popen(
                ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv", "-lms", "100"],
                stdout=subprocess.DEVNULL,
            )
        return "" if self._core is None else str(self._core)

    def __exit__(self, *_: object) -> None:
        self._burners.stop()
        if self._smi is not None:
            self._smi.kill()
            self._smi.wait()
        if self._core is not None:
            self._place(set(self._cores), set(self._cores))

    def _place(self, scheduler_cores: set[int], other_cores: set[int]) -> None:
        scheduler = self._server.scheduler()
        for pid in (os.getpid(), *self._server.others(), scheduler):
            for thread in psutil.Process(pid).threads():
                main = thread.id == scheduler
                os.sched_setaffinity(thread.id, scheduler_cores if main else other_cores)


def merge(sitting: Sitting, servers: list[Server]) -> Iterator[dict[str, Any]]:
    """Yield each request with what the probe saw of its prefill."""
    seen: dict[str, dict[str, Any]] = {}
    for server in servers:
        for line in server.trace.read_text().splitlines():
            row = json.loads(line)
            row["alone"] = len(row["requests"]) == 1
            seen |= dict.fromkeys(row.pop("requests"), row)
    for request in sitting.requests:
        found = seen.get(request["request"])
        if found is None:
            continue
        stages = {
            "inbound_s": found["arrived_at"] - request["sent_at"],
            "queue_s": found["picked_at"] - found["arrived_at"],
            "probes_s": found["launch_at"] - found["picked_at"],
            "launch_s": found["launched_at"] - found["launch_at"],
            "next_s": found["result_at"] - found["launched_at"],
            "wait_s": found["computed_at"] - found["result_at"],
            "process_s": found["sent_at"] - found["computed_at"],
            "outbound_s": request["first_at"] - found["sent_at"],
        }
        own = {k: v for k, v in found.items() if not k.endswith("_at")}
        yield request | stages | own | {"layers_at": found["layers_at"]}


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="models of models.py")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0, help="time in all [default: 8]")
    parser.add_argument("--server", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--study", type=Path, default=HERE / "one-gpu-eagle3.yaml")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.monotonic()
    deadline = began + 60 * args.minutes - 15
    args.output.mkdir(parents=True, exist_ok=True)
    models = (args.folder / "models").resolve()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        write_plugin(work / "plugin")
        flags = server_flags(models, args.study)
        servers: list[Server] = []
        sitting = Sitting(args.seed)
        try:
            for number, server_name in enumerate(args.server):
                servers.append(start(server_name, number, models, flags, work))
                time.sleep(0.3)
            ready = wait_until_ready(servers, min(began + START_LIMIT_S, deadline))
            print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
            print(f"siblings: {sitting.look_for_siblings()}", flush=True)
            while ready:
                server, *ready = ready
                shares = [SERVERS[one.name][1] for one in (server, *ready)]
                left = deadline - time.monotonic()
                try:
                    sitting.measure(server, time.monotonic() + left * shares[0] / sum(shares))
                except (OSError, RuntimeError, http.client.HTTPException) as error:
                    print(f"{server.name}: {error!r}", flush=True)
                    server.send_signal(signal.SIGSTOP)
                print(f"{server.name}: {len(sitting.windows)} windows so far", flush=True)
            print(f"siblings at the end: {sitting.look_for_siblings()}", flush=True)
        finally:
            end(servers)
            for log in work.glob("*.log"):
                shutil.copy(log, args.output)
            rows = list(merge(sitting, servers))
            write_csv(
                args.output / "layers.csv",
                [
                    {"request": row["request"]}
                    | {f"layer_{n}": at for n, at in enumerate(row.pop("layers_at"))}
                    for row in rows
                ],
            )
            write_csv(args.output / "requests.csv", rows)
            write_csv(args.output / "windows.csv", sitting.windows)
    text = report(args.output)
    (args.output / "report.txt").write_text(text)
    print(text)
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
