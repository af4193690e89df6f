"""Measure the cost of the cycle clock: its CPU time, and its effect on requests.

    python -m benchmarks.clock_cost hooks
    python -m benchmarks.clock_cost server --study FILE [--steps 3] [--blocks 8] [--tokens 128]

`hooks` calls the plugin's hooks around empty parts and prints CPU time per cycle. Events do
nothing, so their cost is not included. On a machine with a GPU, `--python` names an interpreter
with torch, and real events are recorded (`docs/plugin.md`).

`server` launches a server of the study's first chain with the runner of `tuner sweep`. It measures
blocks of the same greedy requests, with the clock stopped and running in turns (stopped, running,
running, stopped, ...), so that drift cancels out. The figure is the time per verify. The hooks stay
in place while the clock is stopped; only events and sums are skipped.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from results.records import LaunchIntent
from runners.plugin.package import FOLDER, is_switchable
from runners.plugin.protocol import TOKEN_ARGUMENT, token_of
from runners.sglang.runner import SGLangRunner
from search_spaces.configuration import Configuration, Setting
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study

if TYPE_CHECKING:
    from results.records import ProcessIdentity
    from search_spaces.study_file.study import Study

CLOCK_ARGUMENT = "tuner_clock"
TEXTS = (
    "def server_args(self, model_path):",
    "The quick brown fox",
    "for index in range(10):",
    "import torch",
)
_TIMEOUT_S = 600

# Runs in the plugin's folder, by any interpreter.
_HOOKS = """
import json, sys, time
from types import SimpleNamespace as N
from tuner_sglang_plugin.clock import CycleClock
from tuner_sglang_plugin.clock import CpuMarks, CudaMarks

cycles, repeats, real = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "real"

class Nothing:
    def record(self): pass
    def query(self): return True
    def elapsed_time(self, end): return 1.0

def marks():
    if real:
        return CudaMarks()
    made = CudaMarks.__new__(CudaMarks)
    made._make, made._spare = Nothing, []
    return made

mode = N(is_idle=lambda: False, is_decode=lambda: False, is_target_verify=lambda: True)
output = N(can_run_graph=True)
runner, worker = N(is_draft_worker=False), N(cuda_graph_runner=object())
batch = N(forward_mode=mode, seq_lens=N(shape=(1,)), batch_size=1)
draft = lambda worker, batch, **more: None
extend = lambda worker, batch, result, **more: None
verify = lambda runner, batch, *args, **more: output

def hooked(clock):
    for _ in range(cycles):
        clock.draft(draft, worker, batch)
        clock.forward(verify, runner, batch, pp_proxy_tensors=None)
        clock.draft_extend(extend, worker, batch, None)

def bare():
    for _ in range(cycles):
        draft(worker, batch)
        verify(runner, batch, pp_proxy_tensors=None)
        extend(worker, batch, None)

def spent(work):
    begun = time.process_time()
    work()
    return (time.process_time() - begun) / cycles * 1e6

def clock(of, runs):
    made = CycleClock()
    made._marks, made._runs = of, runs
    return made

found = {"bare": [], "stopped": [], "events": [], "cpu": []}
for _ in range(repeats):
    found["bare"].append(spent(bare))
    for name, of, runs in (("stopped", marks(), False), ("events", marks(), True),
                           ("cpu", CpuMarks(), True)):
        one = clock(of, runs)
        found[name].append(spent(lambda: hooked(one)))
print(json.dumps({name: min(values) for name, values in found.items()}))
"""


def measure_hooks(python: str, cycles: int, repeats: int, *, real: bool) -> dict[str, float]:
    """Return CPU time per cycle in microseconds, the minimum of several repeats."""
    kind = "real" if real else "none"
    done = subprocess.run(
        [python, "-c", _HOOKS, str(cycles), str(repeats), kind],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def configuration_of(study: Study, steps: int | None) -> Configuration:
    """Return the first chain of the study with these steps.

    Raises:
        SystemExit: The study has no chain.
    """
    chains = (c for c in Space(study) if is_switchable(c) and c.speculation.topk == 1)
    chain = next(chains, None)
    if chain is None:
        raise SystemExit("the study has no chain (EAGLE, EAGLE3, NEXTN or STANDALONE at topk 1)")
    return chain.with_setting(Setting(steps)) if steps is not None else chain


class Server:
    """A launched server with its answers and its clock."""

    def __init__(self, port: int, mark: str) -> None:
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=_TIMEOUT_S, trust_env=False
        )
        self._token = token_of(mark)

    def clock(self, *, runs: bool) -> None:
        """Stop or start the clock."""
        body = {"server_args": {CLOCK_ARGUMENT: int(runs), TOKEN_ARGUMENT: self._token}}
        answer = self._http.post("/set_internal_state", json=body).json()
        if answer != [True]:
            raise SystemExit(f"the clock was not set: {answer}")

    def per_verify_s(self, text: str, tokens: int) -> float:
        """Return seconds per verify of one greedy request, including its prefill."""
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        begun = time.perf_counter()
        answer = self._http.post("/generate", json={"text": text, "sampling_params": sampling})
        spent = time.perf_counter() - begun
        verifies: int = answer.json()["meta_info"]["spec_verify_ct"]
        return spent / verifies

    def block(self, tokens: int) -> list[float]:
        """Send all texts once."""
        return [self.per_verify_s(text, tokens) for text in TEXTS]


def measure_server(study: Study, steps: int | None, blocks: int, tokens: int) -> None:
    """Launch the server, measure in turns, and print the result."""
    mark = uuid.uuid4().hex
    found: list[ProcessIdentity] = []
    with tempfile.TemporaryDirectory(prefix="clock-cost-") as folder:
        runner = SGLangRunner(study, seed=0, log_dir=Path(folder))
        configuration = configuration_of(study, steps)
        intent = LaunchIntent(configuration, (), mark, str(Path(folder) / "server.log"))
        session = runner.start(intent, lambda process, _: found.append(process))
        try:
            server = Server(found[0].port, mark)
            server.block(tokens)
            stopped: list[list[float]] = []
            running: list[list[float]] = []
            for block in range(blocks):
                for runs in (False, True) if block % 2 == 0 else (True, False):
                    server.clock(runs=runs)
                    (running if runs else stopped).append(server.block(tokens))
        finally:
            session.close()
    logs = [
        math.log(with_it / without)
        for pair in zip(running, stopped, strict=True)
        for with_it, without in zip(*pair, strict=True)
    ]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    flat = [
        statistics.median(one for block in blocks_ for one in block)
        for blocks_ in (stopped, running)
    ]
    print(f"{configuration.speculation}: {blocks} pairs of blocks, {len(TEXTS)} requests each")
    print(f"ms per verify, median: stopped {flat[0] * 1e3:.3f}, running {flat[1] * 1e3:.3f}")
    print(
        f"running / stopped, paired by request: {math.expm1(mean):+.2%}"
        f" (95 %: {math.expm1(mean - 2 * error):+.2%} to {math.expm1(mean + 2 * error):+.2%})"
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ways = parser.add_subparsers(dest="way", required=True)
    hooks = ways.add_parser("hooks")
    hooks.add_argument("--python", help="an interpreter with torch, on a machine with a GPU")
    hooks.add_argument("--cycles", type=int, default=20_000)
    hooks.add_argument("--repeats", type=int, default=7)
    server = ways.add_parser("server")
    server.add_argument("--study", required=True)
    server.add_argument("--steps", type=int)
    server.add_argument("--blocks", type=int, default=8)
    server.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    for ending in (signal.SIGINT, signal.SIGTERM):  # a server must not outlive it
        signal.signal(ending, signal.default_int_handler)
    if given.way == "server":
        measure_server(load_study(given.study), given.steps, given.blocks, given.tokens)
        return
    python = given.python or sys.executable
    found = measure_hooks(python, given.cycles, given.repeats, real=given.python is not None)
    events = "real events" if given.python else "events that do nothing"
    print(f"us of processor time per cycle (draft, verify, draft extend), {given.cycles} cycles,")
    print(f"least of {given.repeats}:")
    print(f"  without hooks            {found['bare']:8.2f}")
    print(f"  hooks, the clock stopped {found['stopped']:8.2f}")
    print(f"  on a GPU ({events}) {found['events']:8.2f}")
    print(f"  on a CPU                 {found['cpu']:8.2f}")


if __name__ == "__main__":
    main()
