"""Compare the CPU cost of load generators per streamed token.

    python benchmarks/load.py [--rounds 3] [--clients ours,ours-openai,bench_serving,...]

One server process (`load_server.py`) sends prepared streams to all clients. The clients take turns
within each round, so that a busy machine slows all of them alike. The CPU time covers all processes
of a client while the middle part of the chunks is sent, so start-up and evaluation are excluded;
the remaining CPU time is listed separately. The chunk rate covers the same part, with a server that
sends as fast as the client reads.

Other clients run unchanged, in separate environments: `sglang.bench_serving` and its Rust client
in that of TUNER_SGLANG_PYTHON or `make sglang-cpu`; guidellm and aiperf in build/guidellm and
build/aiperf (`make bench-clients`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
from load_server import MODEL, TOKENS_PER_CHUNK, chunks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from runners.load.running_server import EndpointName

ROOT = Path(__file__).parents[1]
SGLANG_CPU = ROOT / ".sglang-cpu"
TOKENIZER = SGLANG_CPU / "models" / "tiny"
GOAL = 0.75
INPUT_TOKENS = 32
RUST = "bench_serving-rust"
RUN_TIMEOUT_S = 300
POLL_S = 0.02
AMID = (0.2, 0.85)


@dataclass(frozen=True, slots=True)
class Load:
    """One run of a client."""

    url: str
    requests: int
    concurrency: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Client:
    """A load generator: its command and its requirements."""

    name: str
    what: str
    program: Path
    argv: Callable[[Load], list[str]]
    offline: bool = True


def ours(endpoint: str) -> Callable[[Load], list[str]]:
    return lambda load: [
        str(Path(__file__)), "--as-client", endpoint, load.url,
        str(load.requests), str(load.concurrency), str(load.tokens),
    ]  # fmt: skip


def bench_serving(*more: str) -> Callable[[Load], list[str]]:
    return lambda load: [
        "-m", "sglang.bench_serving", *more, "--base-url", load.url, "--model", MODEL,
        "--tokenizer", str(TOKENIZER), "--dataset-name", "random-ids",
        "--random-input-len", str(INPUT_TOKENS), "--random-output-len", str(load.tokens),
        "--random-range-ratio", "1", "--num-prompts", str(load.requests),
        "--max-concurrency", str(load.concurrency), "--disable-tqdm",
        "--output-file", "result.jsonl",
    ]  # fmt: skip


def guidellm(load: Load) -> list[str]:
    return [
        "run", "--backend", f"kind=openai_http,target={load.url},model={MODEL}",
        "--profile", f"kind=concurrent,streams={load.concurrency}",
        "--constraint", f"kind=max_requests,count={load.requests}",
        "--data",
        f"kind=synthetic_text,prompt_tokens={INPUT_TOKENS},output_tokens={load.tokens}",
        "--tokenizer", f"kind=hf_auto,model={TOKENIZER}",
        "--output", "kind=json,path=result.json", "--disable-console",
    ]  # fmt: skip


def aiperf(load: Load) -> list[str]:
    return [
        "profile", "-m", MODEL, "-u", load.url, "--endpoint-type", "completions", "--streaming",
        "--use-server-token-count", "--tokenizer", str(TOKENIZER), "--isl", str(INPUT_TOKENS),
        "--osl", str(load.tokens), "--extra-inputs", "ignore_eos:true",
        "--concurrency", str(load.concurrency), "--request-count", str(load.requests),
        "--artifact-dir", "aiperf", "--ui", "none",
    ]  # fmt: skip


def clients() -> tuple[Client, ...]:
    sglang = Path(os.environ.get("TUNER_SGLANG_PYTHON") or SGLANG_CPU / "venv" / "bin" / "python")
    here = Path(sys.executable)
    build = ROOT / "build"
    return (
        Client("ours", "tuner, /generate", here, ours("generate")),
        Client("ours-openai", "tuner, /v1/completions", here, ours("completions")),
        Client(
            "bench_serving",
            "sglang.bench_serving, /generate",
            sglang,
            bench_serving("--backend", "sglang"),
        ),
        Client(
            "bench_serving-openai",
            "sglang.bench_serving, /v1/completions",
            sglang,
            bench_serving("--backend", "sglang-oai"),
        ),
        Client(
            RUST,
            "sglang.bench_serving --rust-client, /generate",
            sglang,
            bench_serving("--backend", "sglang", "--rust-client"),
        ),
        Client(
            "guidellm",
            "guidellm, /v1/completions",
            build / "guidellm" / "bin" / "guidellm",
            guidellm,
        ),
        # Told to be offline it does not find a tokenizer in a folder (0.13).
        Client(
            "aiperf",
            "aiperf, /v1/completions",
            build / "aiperf" / "bin" / "aiperf",
            aiperf,
            offline=False,
        ),
    )


class Server:
    """The server process; a context manager."""

    def __init__(self, pace_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("load_server.py")), str(pace_s)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"

    def chunks(self) -> int:
        """Return the number of chunks that the server has sent."""
        with urllib.request.urlopen(f"{self.url}/sent", timeout=30) as response:
            return int(json.load(response)["chunks"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)


@dataclass(frozen=True, slots=True)
class Instant:
    """State of a client's run at one time."""

    at: float
    cpu_s: float
    chunks: int


@dataclass(frozen=True, slots=True)
class Run:
    """Cost of one run of a client: the whole run, and two times within the streams."""

    cpu_s: float
    first: Instant
    last: Instant

    @property
    def chunks(self) -> int:
        return self.last.chunks - self.first.chunks

    @property
    def us_per_token(self) -> float:
        spent = self.last.cpu_s - self.first.cpu_s
        return spent / (self.chunks * int(TOKENS_PER_CHUNK)) * 1e6

    @property
    def chunks_per_s(self) -> float:
        return self.chunks / (self.last.at - self.first.at)


def cpu_of(process: psutil.Process) -> float:
    """Return CPU seconds of a process and all its descendants."""
    spent = 0.0
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


def run(client: Client, server: Server, load: Load) -> Run:
    """Run a client to its end.

    Raises:
        RuntimeError: The client failed; the message has the end of its output.
    """
    environment = dict(os.environ)
    if client.offline:
        environment |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    before = server.chunks()
    expected = load.requests * chunks_of(load.tokens)
    seen: list[Instant] = []
    cpu_s = 0.0
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+b") as log:
        process = psutil.Popen(
            [str(client.program), *client.argv(load)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        give_up = time.monotonic() + RUN_TIMEOUT_S
        try:
            while process.poll() is None and time.monotonic() < give_up:
                with contextlib.suppress(psutil.NoSuchProcess):
                    cpu_s = max(cpu_s, cpu_of(process))
                sent = server.chunks() - before
                if AMID[0] * expected <= sent <= AMID[1] * expected:
                    seen.append(Instant(time.perf_counter(), cpu_of(process), sent))
                time.sleep(POLL_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.wait() != 0:
            log.seek(0)
            tail = log.read()[-2000:].decode("utf-8", "replace")
            raise RuntimeError(f"{client.name} exited with {process.returncode}:\n{tail}")
    if len(seen) < 2 or seen[-1].chunks - seen[0].chunks < expected / 4:
        raise RuntimeError(f"{client.name} was too quick to be watched: give it more requests")
    return Run(cpu_s, seen[0], seen[-1])


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one client in one round."""

    us_per_token: float
    other_cpu_s: float
    chunks_per_s: float


def cost(client: Client, paced: Server, flood: Server, args: argparse.Namespace) -> Cost:
    calm = run(client, paced, Load(paced.url, args.requests, args.concurrency, args.tokens))
    fast = run(client, flood, Load(flood.url, 4 * args.requests, args.concurrency, args.tokens))
    streamed = args.requests * chunks_of(args.tokens) * TOKENS_PER_CHUNK
    return Cost(
        us_per_token=calm.us_per_token,
        other_cpu_s=max(calm.cpu_s - calm.us_per_token * streamed / 1e6, 0.0),
        chunks_per_s=fast.chunks_per_s,
    )


def as_client(
    endpoint: EndpointName, url: str, requests: int, concurrency: int, tokens: int
) -> None:
    """Run our load generator as `tuner bench` does, with as many prompts as requested."""
    from runners.load.prompts.prompts import Prompt, PromptSource  # noqa: PLC0415
    from runners.load.running_server import bench, find_target  # noqa: PLC0415
    from search_spaces.workload import OperatingPoint, Workload  # noqa: PLC0415

    class Numbered(PromptSource):
        def select(self, count: int, seed: int) -> tuple[Prompt, ...]:
            return tuple(
                Prompt(f"{n}", f"{n} {seed} " + "word " * INPUT_TOKENS) for n in range(count)
            )

    point = OperatingPoint(concurrency, requests=requests)
    workload = Workload((("chat", 1.0),), tokens, (point,))
    target = find_target(url, endpoint)
    measurement = bench(url, workload, point, prompts=Numbered(), target=target)
    failed = [reason for reason in measurement.invalid if reason.startswith("failed_requests")]
    if failed:
        raise SystemExit("\n".join(failed))
    print(json.dumps({"output_tok_s": measurement.output_tok_s}))


def report(costs: dict[Client, list[Cost]], args: argparse.Namespace) -> None:
    print(
        f"{args.tokens} tokens an answer, {TOKENS_PER_CHUNK} a chunk; concurrency "
        f"{args.concurrency}; {args.requests} requests; {args.rounds} rounds, medians; "
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
    )
    heads = ("CPU us/token", "min..max", "other CPU s", "chunks/s")
    print(f"{'client':<48}{heads[0]:>13}{heads[1]:>16}{heads[2]:>16}{heads[3]:>11}")
    for client, rounds in costs.items():
        us = [cost.us_per_token for cost in rounds]
        print(
            f"{client.what:<48}{statistics.median(us):>13.2f}{f'{min(us):.2f}..{max(us):.2f}':>16}"
            f"{statistics.median(cost.other_cpu_s for cost in rounds):>16.2f}"
            f"{statistics.median(cost.chunks_per_s for cost in rounds):>11.0f}"
        )
    rivals = [client for client in costs if not client.name.startswith("ours")]
    for mine in (client for client in costs if client.name.startswith("ours")):
        ratios = {
            rival: statistics.median(
                a.us_per_token / b.us_per_token
                for a, b in zip(costs[mine], costs[rival], strict=True)
            )
            for rival in rivals
        }
        # The field's clients as one runs them; the Rust one shows what is possible.
        usual = {rival: ratio for rival, ratio in ratios.items() if rival.name != RUST}
        if not usual:
            continue
        best = max(usual, key=usual.__getitem__)
        print(
            f"{mine.what}: {usual[best]:.2f} of the best ({best.what}), goal {GOAL}; "
            + ", ".join(f"{ratio:.2f} of {rival.name}" for rival, ratio in ratios.items())
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tokens", type=int, default=256, help="output tokens of an answer")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--requests", type=int, default=384, help="requests of one paced run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--pace-ms", type=float, default=4.0, help="time between chunks of one stream"
    )
    parser.add_argument("--clients", default="", help="names, separated by commas [default: all]")
    parser.add_argument("--as-client", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.as_client:
        endpoint, url, *numbers = args.as_client
        as_client(endpoint, url, *map(int, numbers))
        return
    wanted = set(args.clients.split(",")) - {""}
    chosen = [client for client in clients() if not wanted or client.name in wanted]
    for client in chosen:
        if not client.program.exists():
            print(f"left out: {client.what}, as {client.program} is not there", file=sys.stderr)
    chosen = [client for client in chosen if client.program.exists()]
    costs: dict[Client, list[Cost]] = {client: [] for client in chosen}
    with Server(args.pace_ms / 1000) as paced, Server(0.0) as flood:
        for number in range(args.rounds):
            for client in tuple(costs):
                try:
                    costs[client].append(cost(client, paced, flood, args))
                except RuntimeError as error:
                    print(f"left out: {error}", file=sys.stderr)
                    del costs[client]
                    continue
                said = costs[client][-1].us_per_token
                print(f"round {number + 1}, {client.what}: {said:.2f} us/token", file=sys.stderr)
    report(costs, args)


if __name__ == "__main__":
    main()
