"""Other people's clients, unchanged, against the simulated server: they see what we see.

The same prompts in the same order, answers of the same fixed length, one request at a time and
eight.
`sglang.bench_serving` divides all output tokens by the time from its first request to its last
answer, and so do we here; its clock also runs while it reads `/server_info` at the end, so the run
is long enough for that not to count. Its accept length is the server's own since the cache was
emptied, ours is made of the requests' counts. aiperf pauses between requests, so with it tokens are
divided by the latencies of the requests alone; its accept length is a mean of samples of a gauge,
which says little of so short a run, and is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml

from benchmarks.sglang_bench import BenchServing, order_of_sending
from runners.load.prompts.prompts import Prompt, PromptSource
from runners.load.running_server import bench, find_target
from runners.process.ports import free_port_block
from search_spaces.workload import OperatingPoint, Workload

pytestmark = pytest.mark.sglang

ROOT = Path(__file__).parents[2]
TOLERANCE = 0.01
SPEED_TOLERANCE = 0.03
"""Within 1 % on a quiet machine; what must pass also runs on busy ones."""
ATTEMPTS = 3
OUTPUT_TOKENS = 48
# Eight at a time have windows of the same length as one at a time.
LOADS = [(1, 5), (8, 40)]
AIPERF = ROOT / "build" / "aiperf" / "bin" / "aiperf"
# Without noise, and slow enough that what a client itself takes does not count. Prefills are short:
# a quicker client's next requests share fewer of them (docs/bench.md).
PROFILE = {
    "name": "agreement",
    "decode_ms": 60.0,
    "verify": {"base_ms": 60.0, "per_token_ms": 2.5},
    "draft": {"step_ms": {1: 2.0}, "extend_ms": 5.0},
    "rest_ms": 3.0,
    "batch": {"token_ms": 0.05},
    "prefill": {"base_ms": 5.0, "token_ms": 0.05},
    "acceptance": {"at_least": [0.6, 0.35, 0.2]},
    "startup": dict.fromkeys(
        [
            *("imports_s", "distributed_s", "load_weight_s", "load_draft_s", "kv_cache_s"),
            *("cuda_graph_s", "draft_cuda_graph_s", "switchable_step_s", "warmup_s"),
        ],
        0.0,
    ),
}


def sentences(count):
    """Prompts that share no beginning."""
    return [f"{n:03d}{999 - n} is a number; what is it good for?" for n in range(count)]


class Sentences(PromptSource):
    """Those, in the order in which `bench_serving` sends them."""

    def select(self, count, seed):
        return tuple(Prompt(text, text) for text in order_of_sending(sentences(count)))


@pytest.fixture
def url(tmp_path):
    profile = tmp_path / "profile.yaml"
    profile.write_text(yaml.safe_dump(PROFILE))
    port = free_port_block()
    argv = [
        sys.executable, "-m", "runners.simulated_server", "--model-path", "target",
        "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "draft",
        "--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
        "--speculative-num-draft-tokens", "4", "--max-running-requests", "64",
        # The server's own average is only brought up to date when it logs.
        "--decode-log-interval", "1", "--port", str(port),
    ]  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    log = tmp_path / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            argv,
            env={
                **kept,
                "PYTHONPATH": str(ROOT),
                "TUNER_SIM_PROFILE": str(profile),
                "TUNER_SIM_TIME_SCALE": "1",
            },
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 120
        while True:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(
                    f"http://127.0.0.1:{port}/server_info", timeout=60, trust_env=False
                )
                if answer.is_success:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait(60)


def ours(url, concurrency, requests, endpoint="generate", *, within_requests=False):
    """Our figures over the whole."""
    point = OperatingPoint(concurrency, requests=requests)
    # All lanes begin at once with whole answers, as theirs do: at a fixed length they stay in step,
    # which is another load than that of our lanes with cut answers.
    workload = Workload((("chat", 1.0),), OUTPUT_TOKENS, (point,), warmup_requests=0)
    target = find_target(url, endpoint)
    measurement = bench(url, workload, point, prompts=Sentences(), target=target, burst=True)
    assert [why for why in measurement.invalid if not why.startswith("lock_step:")] == []
    samples = measurement.samples
    began = min(sample.sent_s for sample in samples)
    ended = max(sample.sent_s + sample.e2e_s for sample in samples)
    tokens = sum(sample.completion_tokens for sample in samples)
    return (
        tokens / (sum(s.e2e_s for s in samples) if within_requests else ended - began),
        measurement.accept_length,
    )


def bench_serving(cpu_server, url, concurrency, texts):
    """What `bench_serving` says of the same prompts, in the same order."""
    tokenizer = str(cpu_server.models / "tiny")
    client = BenchServing(str(cpu_server.python), url, tokenizer, OUTPUT_TOKENS)
    said = client.run(texts, concurrency)
    assert said.output_tokens == len(texts) * OUTPUT_TOKENS
    return said.output_tok_s, said.accept_length


def aiperf(tokenizer, url, concurrency, prompts, folder):
    """What aiperf says of the same prompts, over `/v1/completions`."""
    dataset = folder / "texts.jsonl"
    dataset.write_text("\n".join(json.dumps({"text": text}) for text in prompts))
    artifacts = folder / f"aiperf-{time.monotonic_ns()}"
    done = subprocess.run(
        [
            str(AIPERF), "profile", "-m", "target", "-u", url, "--endpoint-type", "completions",
            "--streaming", "--use-server-token-count", "--use-legacy-max-tokens",
            "--tokenizer", str(tokenizer), "--input-file", str(dataset),
            "--custom-dataset-type", "single_turn", "--extra-inputs", "ignore_eos:true",
            "--extra-inputs", f"max_tokens:{OUTPUT_TOKENS}", "--concurrency", str(concurrency),
            "--request-count", str(len(prompts)), "--artifact-dir", str(artifacts),
            "--ui", "none",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads((artifacts / "profile_export_aiperf.json").read_text())
    assert said["request_count"]["avg"] == len(prompts)
    assert said["total_output_tokens"]["avg"] == len(prompts) * OUTPUT_TOKENS
    # Its processes take their time between two requests; a request's own latency is without that.
    return OUTPUT_TOKENS / said["request_latency"]["avg"] * 1000


def agree(attempt):
    """The machine may be busy: of a few attempts one must see the same speed."""
    seen = []
    for _ in range(ATTEMPTS):
        ours_said, they_said = attempt()
        seen.append((ours_said, they_said))
        if ours_said == pytest.approx(they_said, rel=SPEED_TOLERANCE):
            return
    pytest.fail(f"tok/s over the whole, ours and theirs: {seen}")


@pytest.mark.sglang_long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("concurrency", "requests"), LOADS)
def test_bench_serving_agrees(cpu_server, url, concurrency, requests):
    def attempt():
        speed, length = ours(url, concurrency, requests)
        their_speed, their_length = bench_serving(cpu_server, url, concurrency, sentences(requests))
        assert their_length == pytest.approx(length, rel=TOLERANCE)  # in every attempt
        return speed, their_speed

    agree(attempt)


@pytest.mark.sglang_long
@pytest.mark.timeout(900)
def test_aiperf_agrees(cpu_server, url, tmp_path):
    if not AIPERF.exists():
        pytest.skip("no aiperf: make build/aiperf/bin/aiperf installs it")

    def attempt():
        concurrency, requests = LOADS[0]
        speed, _ = ours(url, concurrency, requests, "completions", within_requests=True)
        texts = sentences(requests)
        return speed, aiperf(cpu_server.models / "tiny", url, concurrency, texts, tmp_path)

    agree(attempt)
