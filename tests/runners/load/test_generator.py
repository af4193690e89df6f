"""One window of the closed loop against a scripted server on loopback.

Without a warm-up where the script counts requests: how many passes it takes is not known ahead.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import threading
import time

import pytest

from runners.base import RunnerError
from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import BuiltInPrompts
from runners.load.prompts.selection import answer_lengths
from runners.load.window.measurement import fingerprint
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

from .timing import codes

pytestmark = pytest.mark.slow

NONE = Speculation()
STANDALONE = Speculation("STANDALONE", num_steps=3, topk=2, num_draft_tokens=6)
POINT = OperatingPoint(1)


def workload(output_tokens=8, **more):
    return Workload(
        prompts=(("chat", 0.5), ("code", 0.5)),
        output_tokens=output_tokens,
        points=(POINT,),
        **{"requests": 6, "warmup_requests": 0, **more},
    )


def generator(server, load=None, **more):
    load = load or workload()
    more = {"processes": 1, **more}
    return LoadGenerator(server.url, load, BuiltInPrompts(load.prompts), **more)


def failure_of(server, point=POINT, load=None, **more):
    with pytest.raises(RunnerError) as caught:
        generator(server, load, **more).measure(point, speculation=NONE)
    assert caught.value.failure.phase == "load"
    return caught.value.failure


def test_a_good_window(server):
    measurement = generator(server).measure(POINT, speculation=NONE)
    assert codes(measurement) == []
    assert (measurement.requests, measurement.failed_requests) == (6, 0)
    assert measurement.output_tokens == 6 * 8
    assert measurement.output_tok_s == pytest.approx(48 / measurement.window_s)
    assert measurement.accept_length is None
    assert measurement.prompt_tokens == 6 * 7
    assert not measurement.simulated
    assert all(s.completion_tokens == 8 and s.e2e_s >= s.ttft_s > 0 for s in measurement.samples)
    assert abs(time.time() - measurement.started_at) < 60


def test_the_procedure_is_warmup_flush_window(server):
    server.flush_statuses = [400, 400]  # busy at first
    load = workload(warmup_requests=1)
    generator(server, load).measure(OperatingPoint(2, requests=5), speculation=NONE)
    paths = server.paths()
    flushed = paths.index("/flush_cache")
    assert flushed in {4, 6, 8}  # passes of two
    assert paths[flushed:] == ["/flush_cache"] * 3 + ["/generate"] * (2 + 5)
    sent = server.bodies("/generate")
    assert len({body["text"] for body in sent}) == len(sent)  # nothing is sent twice
    asked = [body["sampling_params"].pop("max_new_tokens") for body in sent]
    assert asked[:-7] == [8] * len(asked[:-7])
    # The ramp's answers are cut short.
    assert sorted(asked[-7:]) == [2, 6, 8, 8, 8, 8, 8]
    assert all(
        body["stream"] is True
        and body["sampling_params"] == {"temperature": 0.0, "ignore_eos": True}
        for body in sent
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_answers_differ_in_length_and_every_window_sends_the_same(server, processes):
    load = workload(output_tokens=40, output_spread=0.5, requests=12)
    point = OperatingPoint(2, requests=12)
    measured = [
        generator(server, load, seed=3, processes=processes).measure(point, speculation=NONE)
        for _ in range(2)
    ]
    expected = answer_lengths(load, 12, 3)
    assert len(set(expected)) == 12
    for measurement in measured:
        assert [sample.completion_tokens for sample in measurement.samples] == list(expected)
        assert codes(measurement) == []
    assert measured[0].workload_fingerprint == measured[1].workload_fingerprint
    texts = [prompt.text for prompt in BuiltInPrompts(load.prompts).select(12, 3)]
    asked = {}
    for body in server.bodies("/generate"):
        asked.setdefault(body["text"], set()).add(body["sampling_params"]["max_new_tokens"])
    assert [asked[text] for text in texts] == [{length} for length in expected]


def test_one_lane_has_no_ramp(server):
    generator(server).measure(POINT, speculation=NONE)
    assert server.paths().count("/generate") == 6


def test_a_burst_has_no_ramp(server):
    point = OperatingPoint(2, requests=6)
    measurement = generator(server, burst=True).measure(point, speculation=NONE)
    assert server.paths().count("/generate") == 6
    assert min(sample.sent_s for sample in measurement.samples) == 0


def test_a_whole_run_has_no_ramp_and_counts_every_token(server, answer):
    server.generate = lambda _n, body: answer(
        body["sampling_params"]["max_new_tokens"], wait_s=0.002
    )
    point = OperatingPoint(3, requests=12)
    load = generator(server, workload(output_spread=0.5), whole_run=True)
    measurement = load.measure(point, speculation=NONE)
    assert server.paths().count("/generate") == 12
    samples = measurement.samples
    end = max(sample.sent_s + sample.e2e_s for sample in samples)
    tokens = sum(sample.completion_tokens for sample in samples)
    assert tokens == measurement.output_tokens == 12 * 8
    assert min(sample.sent_s for sample in samples) == 0
    assert measurement.output_tok_s == pytest.approx(tokens / end)
    assert measurement.ttft_p50_ms == pytest.approx(
        1000 * statistics.median(sample.ttft_s for sample in samples)
    )


def test_an_open_loop_of_a_whole_run_has_no_ramp(server, answer):
    server.generate = lambda _n, _body: answer(8, wait_s=0.01)
    point = OperatingPoint(request_rate=100.0, requests=20)
    load = workload(warmup_requests=1)
    ramped = generator(server, load).measure(point, speculation=NONE)
    assert min(sample.sent_s for sample in ramped.samples) < 0
    whole = generator(server, load, whole_run=True).measure(point, speculation=NONE)
    assert min(sample.sent_s for sample in whole.samples) == 0
    assert whole.output_tokens == 20 * 8


def test_a_failed_request_of_the_ramp_is_a_failed_request(server, answer):
    # The two requests of the ramp are the only ones that are cut.
    server.generate = lambda _n, body: (
        answer(8) if body["sampling_params"]["max_new_tokens"] == 8 else (500, [b"boom"])
    )
    measurement = generator(server).measure(OperatingPoint(2, requests=6), speculation=NONE)
    assert codes(measurement) == ["failed_requests"]
    assert "2 of 8 requests failed" in " ".join(measurement.invalid)
    # The counted requests all succeeded.
    assert (measurement.requests, measurement.failed_requests) == (6, 0)


def test_the_same_seed_sends_the_same_load(server):
    first = generator(server, seed=3).measure(POINT, speculation=NONE)
    second = generator(server, seed=3).measure(POINT, speculation=NONE)
    other = generator(server, seed=4).measure(POINT, speculation=NONE)
    assert [s.prompt for s in first.samples] == [s.prompt for s in second.samples]
    assert first.workload_fingerprint == second.workload_fingerprint
    assert first.workload_fingerprint != other.workload_fingerprint
    load = workload()
    prompts = BuiltInPrompts(load.prompts).select(6, 3)
    assert first.workload_fingerprint == fingerprint(prompts, load)


def test_concurrency_is_held_and_never_exceeded(server, answer):
    server.generate = lambda _n, _b: answer(8, wait_s=0.001)
    measurement = generator(server).measure(OperatingPoint(4), speculation=NONE)
    assert measurement.requests == 16
    assert server.most_in_flight == 4


def test_more_than_a_hundred_connections(server, answer):
    server.generate = lambda _n, _b: answer(2, wait_s=0.2)
    point = OperatingPoint(110, requests=110)
    load = Workload((("chat", 1.0), ("code", 1.0)), 2, (point,), warmup_requests=0)
    measurement = generator(server, load).measure(point, speculation=NONE)
    assert codes(measurement) == []
    assert server.most_in_flight == 110


def test_the_window_closes_before_the_drain(server, answer):
    # The second of two requests takes long after the first has found the queue empty.
    # Requests 0 and 1 are the ramp's.
    server.generate = lambda n, body: answer(
        body["sampling_params"]["max_new_tokens"], wait_s=0.06 if n == 3 else 0.01
    )
    load = workload(warmup_requests=0)
    measurement = generator(server, load).measure(OperatingPoint(2, requests=2), speculation=NONE)
    assert measurement.requests == 2
    assert 1 <= measurement.output_tokens < 16
    slowest = max(sample.e2e_s for sample in measurement.samples)
    assert measurement.window_s < slowest
    assert measurement.output_tok_s == pytest.approx(
        measurement.output_tokens / measurement.window_s
    )


def test_times_are_in_the_servers_own_time(server, answer):
    server.generate = lambda _n, _b: answer(4, wait_s=0.01)
    started = time.perf_counter()
    measurement = generator(server, workload(4), time_scale=1000.0, simulated=True).measure(
        POINT, speculation=NONE
    )
    real = time.perf_counter() - started
    assert measurement.simulated
    assert 6 * 0.02 * 1000 <= measurement.window_s <= real * 1000
    for sample in measurement.samples:
        assert 0.02 * 1000 <= sample.e2e_s <= real * 1000
    assert measurement.tpot_p50_ms >= 5 * 1000
    assert max(sample.sent_s for sample in measurement.samples) >= 5 * 0.02 * 1000


def test_acceptance_of_a_recorded_stream(server, recorded):
    server.generate = lambda _n, _b: recorded("0.5.23-cpu/standalone_generate_stream.sse.txt")
    measurement = generator(server, workload(32)).measure(POINT, speculation=STANDALONE)
    assert codes(measurement) == []
    assert measurement.accept_length == pytest.approx(1 + 17 / 15)
    assert measurement.histogram == (6 * 5, 6 * 3, 6 * 7)
    assert measurement.output_tokens == 6 * 32
    sample = measurement.samples[0]
    assert (sample.verify_calls, sample.correct_drafts) == (15, 17)
    assert (sample.prompt_tokens, sample.finish_reason) == (7, "length")


@pytest.mark.parametrize(
    "name", ["0.5.23-cpu/plain_generate_stream.sse.txt", "0.5.9-cpu/generate_stream.sse.txt"]
)
def test_recorded_streams_without_speculation(server, recorded, name):
    server.generate = lambda _n, _b: recorded(name)
    measurement = generator(server, workload(32)).measure(POINT, speculation=NONE)
    assert codes(measurement) == []
    assert measurement.output_tokens == 6 * 32


def test_tokens_are_counted_not_events(server, answer):
    server.generate = lambda _n, _b: answer(
        31, per_chunk=3, spec_verify_ct=10, spec_num_correct_drafts=20
    )
    measurement = generator(server, workload(31)).measure(POINT, speculation=STANDALONE)
    assert measurement.output_tokens == 6 * 31
    assert measurement.accept_length == 3.0


def test_the_overall_accept_length_weighs_by_verify_calls(server, answer):
    server.generate = lambda n, _b: answer(
        8, spec_verify_ct=10 if n % 2 else 30, spec_num_correct_drafts=20 if n % 2 else 0
    )
    load = workload(requests=2, warmup_requests=0)
    measurement = generator(server, load).measure(POINT, speculation=STANDALONE)
    assert measurement.accept_length == 1 + 20 / 40


class TestInvalid:
    def test_too_few_tokens(self, server, answer):
        server.generate = lambda n, _b: answer(5 if n == 3 else 8)
        measurement = generator(server).measure(POINT, speculation=NONE)
        assert codes(measurement) == ["completion_tokens"]
        assert "1 of 6 answers have a wrong length" in " ".join(measurement.invalid)
        assert "has 5 tokens (length), expected 8" in " ".join(measurement.invalid)

    def test_cached_tokens(self, server, answer):
        server.generate = lambda n, _b: answer(8, prompt_tokens=128, cached_tokens=64 * (n > 0))
        measurement = generator(server).measure(POINT, speculation=NONE)
        assert codes(measurement) == ["cached_tokens"]
        assert "320 of 768 prompt tokens" in " ".join(measurement.invalid)
        assert measurement.cached_tokens == 320

    def test_a_shared_first_token_is_no_reason(self, server, answer):
        server.generate = lambda _n, _b: answer(8, cached_tokens=1)  # the begin of sequence
        measurement = generator(server).measure(POINT, speculation=NONE)
        assert codes(measurement) == []
        assert measurement.cached_tokens == 6

    def test_one_request_with_an_http_error(self, server, answer):
        server.generate = lambda n, _b: (500, [b"boom"]) if n == 4 else answer(8)
        measurement = generator(server).measure(POINT, speculation=NONE)
        assert codes(measurement) == ["failed_requests"]
        assert "HTTP 500: boom" in " ".join(measurement.invalid)
        assert (measurement.requests, measurement.failed_requests) == (5, 1)
        failed = next(sample for sample in measurement.samples if sample.error)
        assert failed.finish_reason == "error"
        # The server is brought to rest before it is handed back.
        assert server.paths()[-2:] == ["/abort_request", "/flush_cache"]

    def test_an_error_event_in_the_stream(self, server, answer):
        event = b'data: {"error":{"message":"input is too long","code":400}}\n\ndata: [DONE]\n\n'
        server.generate = lambda n, _b: (200, [event]) if n == 2 else answer(8)
        measurement = generator(server).measure(POINT, speculation=NONE)
        assert codes(measurement) == ["failed_requests"]
        assert "input is too long" in " ".join(measurement.invalid)

    def test_every_request_fails(self, server):
        server.generate = lambda _n, _b: (500, [b"boom"])
        load = workload(warmup_requests=0)
        measurement = generator(server, load).measure(POINT, speculation=NONE)
        assert codes(measurement) == ["failed_requests", "empty_window"]
        assert (measurement.requests, measurement.output_tok_s) == (0, 0.0)

    @pytest.mark.parametrize("events", [[], [b"data: nonsense\n\n"], [b"data: [DONE]\n\n"]])
    def test_a_stream_that_is_none(self, server, answer, events):
        server.generate = lambda n, _b: (200, list(events)) if n == 2 else answer(8)
        measurement = generator(server).measure(POINT, speculation=NONE)
        assert codes(measurement) == ["failed_requests"]

    def test_a_stream_that_ends_politely_too_soon(self, server, answer):
        server.generate = lambda n, _b: (200, answer(8)[1][:3]) if n == 2 else answer(8)
        measurement = generator(server).measure(POINT, speculation=NONE)
        assert codes(measurement) == ["failed_requests"]
        assert "ended before the answer was complete" in " ".join(measurement.invalid)

    def test_an_aborted_answer(self, server, answer):
        finish = {"type": "abort", "message": "Aborted"}
        server.generate = lambda n, _b: answer(8, finish=finish if n == 2 else None)
        measurement = generator(server).measure(POINT, speculation=NONE)
        assert codes(measurement) == ["failed_requests"]

    @pytest.mark.parametrize("meta", [{}, {"spec_verify_ct": 0, "spec_num_correct_drafts": 0}])
    def test_missing_acceptance(self, server, answer, meta):
        server.generate = lambda _n, _b: answer(8, **meta)
        measurement = generator(server).measure(POINT, speculation=STANDALONE)
        assert codes(measurement) == ["acceptance_missing"]
        assert measurement.accept_length is None

    def test_acceptance_without_speculation(self, server, answer):
        server.generate = lambda _n, _b: answer(8, spec_verify_ct=5, spec_num_correct_drafts=1)
        measurement = generator(server).measure(POINT, speculation=NONE)
        assert codes(measurement) == ["acceptance_unexpected"]
        assert measurement.accept_length is None

    def test_impossible_acceptance(self, server, answer):
        # 3 steps cannot yield more than 4 tokens a verify.
        server.generate = lambda _n, _b: answer(8, spec_verify_ct=5, spec_num_correct_drafts=16)
        measurement = generator(server).measure(POINT, speculation=STANDALONE)
        assert codes(measurement)[0] == "accept_length"
        assert "4.200" in " ".join(measurement.invalid)

    def test_too_few_requests_for_the_concurrency(self, server):
        measurement = generator(server).measure(OperatingPoint(4, requests=2), speculation=NONE)
        # One of them may end before the other lane's cut answer does: no window is left then.
        assert codes(measurement) in (["too_few_requests"], ["too_few_requests", "empty_window"])


class TestFailures:
    def test_nobody_listens(self, server):
        server.__exit__()
        failure = failure_of(server)
        assert (failure.kind, failure.fault) == ("server_gone", "configuration")

    @pytest.mark.parametrize("number", [0, 3])
    def test_a_connection_dropped_mid_stream(self, server, answer, number):
        server.generate = lambda n, _b: (
            (200, [*answer(8)[1][:3], "drop"]) if n == number else answer(8)
        )
        failure = failure_of(server)
        assert (failure.kind, failure.fault) == ("server_gone", "configuration")
        assert "3 tokens" in failure.message

    def test_http_503(self, server, answer):
        server.generate = lambda n, _b: (503, [b"dying"]) if n == 3 else answer(8)
        failure = failure_of(server)
        assert (failure.kind, failure.fault) == ("server_gone", "configuration")

    def test_a_stall(self, server, answer):
        server.generate = lambda n, _b: (200, [*answer(8)[1][:3], "hang"]) if n == 3 else answer(8)
        started = time.perf_counter()
        failure = failure_of(server, stall_timeout_s=0.3)
        assert (failure.kind, failure.fault) == ("stall", "configuration")
        assert 0.3 <= time.perf_counter() - started < 10
        assert server.bodies("/abort_request") == [{"rid": "", "abort_all": True}]

    def test_one_slow_request_is_no_stall_while_others_go_on(self, server, answer):
        server.generate = lambda n, _b: answer(8, wait_s=0.15 if n == 2 else 0.02)
        load = workload(requests=12)
        measurement = generator(server, load, stall_timeout_s=0.9).measure(
            OperatingPoint(2, requests=12), speculation=NONE
        )
        assert codes(measurement) == []

    def test_a_server_that_stays_busy(self, server):
        server.flush_statuses = [400] * 1000
        failure = failure_of(server, flush_timeout_s=0.2)
        assert (failure.kind, failure.fault) == ("not_idle", "configuration")
        assert "/generate" not in server.paths()

    def test_a_refused_flush(self, server):
        server.flush_statuses = [401]
        failure = failure_of(server)
        assert (failure.kind, failure.fault) == ("flush_refused", "client")

    def test_a_failing_warmup(self, server):
        server.generate = lambda _n, _b: (500, [b"boom"])
        failure = failure_of(server, load=workload(warmup_requests=1))
        assert (failure.kind, failure.fault) == ("request_failed", "configuration")
        assert "/flush_cache" not in server.paths()

    def test_nothing_is_left_in_flight_after_a_failure(self, server, answer):
        server.generate = lambda n, _b: (
            (200, [*answer(8)[1][:3], "drop"]) if n == 6 else answer(8, wait_s=0.05)
        )
        failure_of(server, OperatingPoint(4))
        deadline = time.monotonic() + 5
        while server.in_flight and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.in_flight == 0
        assert server.paths()[-1] == "/abort_request"


def test_ctrl_c_aborts_what_is_in_flight(server, answer):
    server.generate = lambda _n, _b: (200, [*answer(8)[1][:3], "hang"])

    def interrupt():
        deadline = time.monotonic() + 10
        while server.in_flight < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        generator(server).measure(OperatingPoint(2), speculation=NONE)
    thread.join()
    assert server.bodies("/abort_request") == [{"rid": "", "abort_all": True}]


def test_the_api_key_is_sent_everywhere(server):
    generator(server, api_key="k1").measure(POINT, speculation=NONE)
    assert server.authorization == {"bearer k1"}


def test_a_proxy_of_the_environment_is_not_used(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert codes(generator(server).measure(POINT, speculation=NONE)) == []


async def test_inside_a_running_loop(server):
    before = len(asyncio.all_tasks())
    measurement = await generator(server)._measure(POINT, NONE, None)
    assert codes(measurement) == []
    assert len(asyncio.all_tasks()) == before


def test_token_ids_are_sent_as_such(server):
    class Rendered:
        def render(self, prompts):
            from runners.load.prompts.prompts import Prompt

            return tuple(Prompt(p.id, input_ids=tuple(p.text.encode())) for p in prompts)

    load = workload()
    LoadGenerator(server.url, load, BuiltInPrompts(load.prompts), Rendered()).measure(
        POINT, speculation=NONE
    )
    first = server.bodies("/generate")[0]
    assert "text" not in first
    assert json.dumps(first["input_ids"]).startswith("[")
