"""`sglang.bench_serving` and our definitions, on one run of the real server.

Its requests go through a tap (`benchmarks/tap.py`), and our reader makes our figures of the very
streams that it reports on: so nothing is compared but the definitions, and a busy machine slows
both sides alike. What is counted of it must agree exactly. Times are of two clocks in two
processes that share two cores with the server, so only a wide band is asserted here;
`benchmarks/agreement.py` measures how close they are.
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
"""Of speeds: a client that does not get a core for a while notes chunks late."""

TEXTS = [f"{n:03d}{999 - n} is a number; what is it good for?" for n in range(REQUESTS)]


class Texts(PromptSource):
    """Those prompts, in the order in which the other client sends them."""

    def select(self, count, seed):
        return tuple(Prompt(text, text) for text in order_of_sending(TEXTS)[:count])


def accounts(samples):
    """What the server says of each prompt's drafts."""
    return {s.prompt: (s.verify_calls, s.correct_drafts, s.histogram) for s in samples}


@pytest.fixture
def one_run(server: LiveServer, cpu_server):
    """What `bench_serving` says of a run, and the requests of it that the tap saw."""
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
def test_one_run_seen_by_both(server: LiveServer, one_run):
    said, tap = one_run
    samples = tap.samples()
    assert all(sample.error is None for sample in samples)
    # The load is the one that was asked for, in the order that we know beforehand.
    assert sorted(sample.prompt for sample in samples) == sorted(TEXTS)
    counts = {sample.prompt: sample.prompt_tokens for sample in samples}
    assert [counts[text] for text in order_of_sending(TEXTS)] == list(said.prompt_tokens)
    assert said.output_tokens == sum(sample.completion_tokens for sample in samples)
    assert said.output_tokens == REQUESTS * OUTPUT_TOKENS

    end = max(sample.sent_s + sample.e2e_s for sample in samples)
    speed = said.output_tokens / end
    # Its clock goes on until the server has told of itself, of which the tap saw a little more.
    assert said.duration_s > end + tap.info_s / 2
    assert said.output_tok_s == pytest.approx(speed, rel=BAND)
    paces = [(s.e2e_s - s.ttft_s) / (s.completion_tokens - 1) for s in samples]
    assert said.tpot_p50_ms == pytest.approx(1000 * statistics.median(paces), rel=BAND)
    # Its TTFT begins before its client connects: on a busy machine that is much, and never less.
    assert said.ttft_p50_ms > 1000 * (1 - BAND) * statistics.median(s.ttft_s for s in samples)

    # The same load by our own client. Which requests run together is another time's chance, and the
    # numerics of a batch depend on it a little: a prompt here and there goes another way.
    point = OperatingPoint(CONCURRENCY, requests=REQUESTS)
    load = Workload((("texts", 1.0),), OUTPUT_TOKENS, (point,), warmup_requests=0)
    measured = bench(server.url, load, point, prompts=Texts(), burst=True)
    ours, theirs = accounts(measured.samples), accounts(samples)
    assert ours.keys() == theirs.keys()
    assert sum(ours[text] == theirs[text] for text in ours) > REQUESTS / 2
    if server.speculation.enabled:
        assert measured.accept_length == pytest.approx(tap.accept_length(), rel=0.1)
        # The server's own average lacks the iterations since the last line of its log.
        assert said.accept_length == pytest.approx(measured.accept_length, rel=0.1)
        assert measured.accept_length > 1.2
    else:
        assert measured.accept_length is None
        assert said.accept_length is None
