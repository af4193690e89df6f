"""`sglang.bench_serving` and the tuner's definitions, on one run of the real server.

The requests of `bench_serving` go through a tap (`benchmarks/tap.py`), and the tuner computes its
figures from the same streams, so only definitions are compared. Counts must be equal. Times come
from two processes that share two cores with the server, so they are compared in a wide band;
`benchmarks/agreement.py` measures the difference.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from benchmarks.sglang_bench import BenchServing, order_of_sending
from benchmarks.tap import Tap
from runners.load.prompts.prompts import Prompt, PromptSource
from runners.load.running_server import bench
from search_spaces.workload import OperatingPoint, Workload

if TYPE_CHECKING:
    from .servers import LiveServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]

CONCURRENCY = 8
REQUESTS = 24
OUTPUT_TOKENS = 48
BAND = 0.25
"""Allowed difference of speeds: a client without a core notes chunks late."""

TEXTS = [f"{n:03d}{999 - n} is a number; what is it good for?" for n in range(REQUESTS)]


class Texts(PromptSource):
    """The prompts in the order in which `bench_serving` sends them."""

    def select(self, count, seed):
        return tuple(Prompt(text, text) for text in order_of_sending(TEXTS)[:count])


def accounts(samples):
    """Draft counts by prompt."""
    return {s.prompt: (s.verify_calls, s.correct_drafts, s.histogram) for s in samples}


@pytest.fixture
def one_run(server: LiveServer, cpu_server):
    """Result of `bench_serving`, and the tap with its requests."""
    client = BenchServing(server.python, server.url, str(cpu_server.models / "tiny"), OUTPUT_TOKENS)
    with Tap(server.port) as tap:
        said = client.at(tap.url).run(TEXTS, CONCURRENCY)
    return said, tap


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("plain", marks=pytest.mark.kind("plain")),
        pytest.param("standalone", marks=pytest.mark.kind("standalone")),
    ],
    indirect=True,
)
def test_bench_serving_and_tuner_agree_on_one_run(server: LiveServer, one_run):
    said, tap = one_run
    samples = tap.samples()
    assert all(sample.error is None for sample in samples)
    # The load is as requested, in the known order.
    assert sorted(sample.prompt for sample in samples) == sorted(TEXTS)
    counts = {sample.prompt: sample.prompt_tokens for sample in samples}
    assert [counts[text] for text in order_of_sending(TEXTS)] == list(said.prompt_tokens)
    assert said.output_tokens == sum(sample.completion_tokens for sample in samples)
    assert said.output_tokens == REQUESTS * OUTPUT_TOKENS

    end = max(sample.sent_s + sample.e2e_s for sample in samples)
    speed = said.output_tokens / end
    # The clock of `bench_serving` includes its final `/server_info`.
    assert said.duration_s > end + tap.info_s / 2
    assert said.output_tok_s == pytest.approx(speed, rel=BAND)
    paces = [(s.e2e_s - s.ttft_s) / (s.completion_tokens - 1) for s in samples]
    assert said.tpot_p50_ms == pytest.approx(1000 * statistics.median(paces), rel=BAND)
    # The TTFT of `bench_serving` includes the connection, so it is never shorter.
    assert said.ttft_p50_ms > 1000 * (1 - BAND) * statistics.median(s.ttft_s for s in samples)

    # The same load by the tuner's client. Other requests run together, which changes the numerics
    # of a batch a little, so a few answers differ.
    point = OperatingPoint(CONCURRENCY, requests=REQUESTS)
    load = Workload((("texts", 1.0),), OUTPUT_TOKENS, (point,), warmup_requests=0)
    measured = bench(server.url, load, point, prompts=Texts(), burst=True)
    ours, theirs = accounts(measured.samples), accounts(samples)
    assert ours.keys() == theirs.keys()
    assert sum(ours[text] == theirs[text] for text in ours) > REQUESTS / 2
    if server.speculation.enabled:
        assert measured.accept_length == pytest.approx(tap.accept_length(), rel=0.1)
        # The server's average lacks the iterations since its last log line.
        assert said.accept_length == pytest.approx(measured.accept_length, rel=0.1)
        assert measured.accept_length > 1.2
    else:
        assert measured.accept_length is None
        assert said.accept_length is None
