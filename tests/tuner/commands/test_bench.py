"""`tuner bench` against a server that somebody else started."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from results.records import Failure
from runners.base import RunnerError
from runners.load.generator import LoadGenerator
from runners.process.ports import free_port_block
from runners.server_info import read_server_info

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

KEY = "a-key-that-nobody-may-see"
# What a busy machine does to a server that runs 40 times faster than life.
BUSY = {
    "unsteady",
    "silent",
    "queue_grows",
    "client_late",
    "client_paused",
    "client_saturated",
    "simulation_behind",
}


def reasons(measured):
    """Codes of the reasons not to believe it, those of a busy machine left out."""
    return {reason.split(":")[0] for reason in measured["invalid"]} - BUSY


@pytest.fixture(scope="module")
def url():
    """A simulated Kimi server; one for all tests here, as they leave it idle."""
    port = free_port_block()
    argv = [
        sys.executable, "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5",
        "--port", str(port), "--speculative-algorithm", "EAGLE3",
        "--speculative-draft-model-path", "draft", "--speculative-num-steps", "2",
        "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3",
        "--api-key", KEY, "--enable-metrics",
    ]  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    server = subprocess.Popen(
        argv,
        env={**kept, "PYTHONPATH": str(ROOT), "TUNER_SIM_TIME_SCALE": "40"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            assert server.poll() is None
            assert time.monotonic() < deadline
            try:
                read_server_info(f"http://127.0.0.1:{port}", api_key=KEY)
                break
            except RunnerError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=60)


@pytest.fixture
def bench(call, url, monkeypatch):
    """Runs `tuner bench` with the server's key in the environment; what it prints."""
    monkeypatch.setenv("SGLANG_API_KEY", KEY)

    def run(*arguments, code=0):
        stdout, stderr = call("bench", "--url", url, *arguments, code=code)
        assert KEY not in stdout + stderr
        assert "Traceback" not in stderr
        return SimpleNamespace(stdout=stdout, stderr=stderr)

    return run


def test_bench(bench):
    done = bench("--requests", "6", "--output-tokens", "64", "--concurrency", "2", "--json")
    measured = json.loads(done.stdout)
    assert measured["simulated"] is True
    assert reasons(measured) == set()
    assert [note.split(":")[0] for note in measured["unchecked"]] == ["compiled", "prompt_tokens"]
    assert measured["notes"] == []
    assert done.stderr == f"{measured['url']}/generate, concurrency 2: 6 requests\n"
    assert (measured["endpoint"], measured["sglang"]) == ("generate", True)
    assert measured["sglang_version"] == "0.5.23"
    assert measured["point"] == {"concurrency": 2}
    assert measured["requests"] >= 6
    assert 1.3 < measured["accept_length"] < 1.8  # 1.527 by the profile


def test_in_words(bench):
    text = bench("--requests", "2", "--output-tokens", "16").stdout
    assert "(simulated)" in text
    assert "accept length" in text
    assert "TPOT p50 / p95 / p99" in text
    assert "not inter-token latency, use TPOT" in text
    assert "all figures and times are simulated" in text.splitlines()[0]
    assert text.count("see docs/validity.md") == 1  # two requests are few


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_openai_endpoints(bench, endpoint):
    done = bench(
        "--endpoint", endpoint, "--requests", "6", "--output-tokens", "64", "--concurrency", "2",
        "--json",
    )  # fmt: skip
    measured = json.loads(done.stdout)
    assert measured["endpoint"] == endpoint
    assert reasons(measured) == set()
    assert 1.3 < measured["accept_length"] < 1.8
    assert measured["output_tok_s"] > 0


def test_an_open_loop_with_goodput(bench):
    done = bench(
        "--request-rate", "2", "--requests", "8", "--output-tokens", "16",
        "--goodput", "ttft:1e9,tpot:1e9", "--json",
    )  # fmt: skip
    measured = json.loads(done.stdout)
    assert measured["point"] == {"request_rate": 2.0}
    assert measured["goodput_request_s"] > 0


def test_a_trace_is_sent_whole(bench, tuner):
    (tuner.folder / "day.jsonl").write_text("".join(f"{n / 4}\n" for n in range(21)))
    done = bench("--trace", "day.jsonl", "--output-tokens", "4", "--json")
    assert ": 21 requests over 5.0 s, 4.00 a second on average" in done.stderr
    assert json.loads(done.stdout)["requests"] == 21


def test_bench_says_that_a_mooncake_trace_is_in_milliseconds(bench, tuner):
    rows = [{"timestamp": 200 * n, "input_length": 655, "hash_ids": [0]} for n in range(11)]
    (tuner.folder / "day.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = bench("--trace", "day.jsonl", "--output-tokens", "4", "--json")
    assert ": 11 requests over 2.0 s, 5.00 a second on average" in done.stderr
    [note] = json.loads(done.stdout)["notes"]
    assert "milliseconds" in note
    assert f"note: {note}\n" in done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("noon", "--trace day.jsonl, line 3: "),
        ("240000", "--trace day.jsonl: the first 3 arrivals of the file take"),
    ],
)
def test_a_trace_that_cannot_be_used(bench, tuner, line, says):
    (tuner.folder / "day.jsonl").write_text(f"0\n1\n{line}\n")
    said = bench("--trace", "day.jsonl", code=2).stderr
    assert says in said
    assert "http://" not in said


def test_a_server_that_is_not_ready(tuner):
    class Starting(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if self.path == "/health" else 200)
            self.end_headers()
            self.wfile.write(b'{"version": "0.5.23", "model_path": "m"}')

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Starting) as starting:
        thread = threading.Thread(target=starting.serve_forever)
        thread.start()
        try:
            done = tuner.run("bench", "--url", f"http://127.0.0.1:{starting.server_port}", code=4)
        finally:
            starting.shutdown()
            thread.join()
    assert "the server is not ready (/health answers HTTP 503)" in done.stderr


@pytest.mark.parametrize(
    "load",
    [
        ("--concurrency", "4", "--burst", "--whole-run"),
        ("--concurrency", "4", "--whole-run"),
        ("--request-rate", "4", "--requests", "16", "--whole-run"),
    ],
)
def test_whole_run_figures_are_those_of_all_requests(bench, monkeypatch, load):
    kept = []
    measure = LoadGenerator.measure

    def measure_and_keep(*arguments, **named):
        kept.append(measure(*arguments, **named))
        return kept[-1]

    monkeypatch.setattr(LoadGenerator, "measure", measure_and_keep)
    found = json.loads(bench(*load, "--output-tokens", "32", "--json").stdout)
    samples = kept[0].samples
    assert len(samples) == 16
    assert len({sample.completion_tokens for sample in samples}) > 8
    begin = min(sample.sent_s for sample in samples)
    end = max(sample.sent_s + sample.e2e_s for sample in samples)
    tokens = sum(sample.completion_tokens for sample in samples)
    assert found["output_tokens"] == tokens == 16 * 32
    assert found["window_s"] == pytest.approx(end - begin)
    assert found["output_tok_s"] == pytest.approx(tokens / (end - begin))
    assert found["request_s"] == pytest.approx(16 / (end - begin))
    ttft = [1000 * sample.ttft_s for sample in samples]
    tpot = [1000 * (s.e2e_s - s.ttft_s) / (s.completion_tokens - 1) for s in samples]
    assert found["ttft_p50_ms"] == pytest.approx(statistics.median(ttft))
    assert found["tpot_p50_ms"] == pytest.approx(statistics.median(tpot))
    assert found["e2e_p99_ms"] <= 1000 * max(sample.e2e_s for sample in samples)
    assert found["window_kind"] == "whole_run"
    assert reasons(found) == set()


def test_repeat(bench):
    done = bench("--repeat", "3", "--concurrency", "2", "--output-tokens", "32", "--json")
    found = json.loads(done.stdout)
    windows = found["windows"]
    assert (found["repeat"], len(windows)) == (3, 3)
    assert found["ended_early"] is None
    assert [line.split(":")[0] for line in done.stderr.splitlines()[1:]] == [
        f"window {n} of 3" for n in (1, 2, 3)
    ]
    assert len({window["workload_fingerprint"] for window in windows}) == 1
    # The same prompts with the same lengths, and an empty cache before each window.
    assert len({window["accept_length"] for window in windows}) == 1
    assert len({window["cached_tokens"] for window in windows}) == 1
    assert [reasons(window) for window in windows] == [set()] * 3
    valid = [window["output_tok_s"] for window in windows if not window["invalid"]]
    assert found["valid_windows"] == len(valid)
    if len(valid) > 1:
        low, high = found["interval95"]["output_tok_s"]
        assert found["mean"]["output_tok_s"] == pytest.approx(statistics.fmean(valid))
        assert low <= found["mean"]["output_tok_s"] <= high


def test_repeat_in_words(bench):
    text = bench("--repeat", "2", "--requests", "4", "--output-tokens", "16").stdout
    assert re.findall(r"^window (\d)", text, re.MULTILINE)[:2] == ["1", "2"]
    assert "accept length" in text
    assert "interval" in text
    assert text.count("see docs/validity.md") == 1  # four requests are few
    assert "window 2: warning: few_requests" in text


def gone():
    return RunnerError(Failure("server_gone", "load", "configuration", "the server is gone"))


@pytest.fixture
def end_in_window(monkeypatch):
    """Makes a window of the next bench raise."""
    measure, begun = LoadGenerator.measure, []

    def end(number, error):
        def measure_until(*arguments, **named):
            begun.append(number)
            if len(begun) == number:
                raise error
            return measure(*arguments, **named)

        monkeypatch.setattr(LoadGenerator, "measure", measure_until)

    return end


REPEAT = ("--repeat", "4", "--requests", "4", "--output-tokens", "16")


@pytest.mark.parametrize(
    "ending",
    [(KeyboardInterrupt(), 130, "interrupted"), (gone(), 4, "the server is gone")],
)
@pytest.mark.parametrize("finished", [1, 2])
def test_finished_windows_survive_a_failure(bench, end_in_window, ending, finished):
    error, code, why = ending
    end_in_window(finished + 1, error)
    done = bench(*REPEAT, "--json", code=code)
    found = json.loads(done.stdout)
    assert (found["repeat"], len(found["windows"])) == (4, finished)
    assert why in found["ended_early"]
    assert all(window["output_tok_s"] > 0 for window in found["windows"])
    valid = sum(not window["invalid"] for window in found["windows"])
    assert found["valid_windows"] == valid
    assert (found["mean"]["output_tok_s"] is not None) is (valid > 1)
    assert done.stderr.splitlines()[-1].startswith("tuner: ")
    assert why in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("finished", [1, 2])
def test_text_shows_finished_windows_and_the_reason(bench, end_in_window, finished):
    end_in_window(finished + 1, gone())
    text = bench(*REPEAT, code=4).stdout
    assert "output tok/s" in text
    assert f"ended early after {finished} of 4 windows" in text.splitlines()[-1]
    assert "the server is gone" in text.splitlines()[-1]


def test_nothing_is_printed_if_the_first_window_fails(bench, end_in_window):
    end_in_window(1, KeyboardInterrupt())
    assert bench(*REPEAT, "--json", code=130).stdout == ""


def test_prompts_of_ones_own(bench, tuner):
    lines = [json.dumps({"prompt": f"What is {n} times {n + 1}?"}) for n in range(64)]
    (tuner.folder / "mine.jsonl").write_text("\n".join(lines))
    done = bench("--prompts", "jsonl:mine.jsonl", "--requests", "4", "--output-tokens", "8")
    assert "output tok/s" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--concurrency", "2", "--request-rate", "1"), "exclude each other"),
        (("--prompts", "jsonl:nowhere.jsonl"), "nowhere.jsonl"),
        (("--trace", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--burst", "--request-rate", "1"), "--burst"),
        (("--output-spread", "1"), "--output-spread"),
        (("--output-spread", "0.2", "--natural-length"), "--natural-length"),
        (("--repeat", "0"), "--repeat"),
        (("--requests", "100000"), "distinct prompts"),
        (("--api-key", "wrong"), "API key"),
    ],
)
def test_wrong_usage(bench, arguments, says):
    assert says in bench(*arguments, code=2).stderr


def test_token_ids_are_no_chat(bench, tuner):
    lines = [json.dumps({"input_ids": [n, 2, 3]}) for n in range(64)]
    (tuner.folder / "ids.jsonl").write_text("\n".join(lines))
    done = bench("--prompts", "jsonl:ids.jsonl", "--endpoint", "chat", code=2)
    assert "use another endpoint or prompts of text" in done.stderr


def test_another_server_is_wrong_usage(tuner):
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.BaseHTTPRequestHandler
    ) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{other.server_port}"
            done = tuner.run("bench", "--url", url, code=2)
        finally:
            other.shutdown()
            thread.join()
    assert "--endpoint completions or chat" in done.stderr


def test_nobody_there(tuner):
    port = free_port_block()
    done = tuner.run("bench", "--url", f"http://127.0.0.1:{port}", code=4)
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_address(call):
    assert "not an HTTP address" in call("bench", "--url", "localhost:30000", code=2)[1]


def test_ctrl_c_prints_the_finished_windows(url, tuner):
    load = ["--requests", "4", "--output-tokens", "64", "--repeat", "1000", "--json"]
    client = subprocess.Popen(
        [sys.executable, "-m", "tuner", "bench", "--url", url, *load],
        env={**tuner.env, "SGLANG_API_KEY": KEY},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not client.stderr.readline().startswith("window 2 of 1000"):
            assert client.poll() is None
        while in_flight(url) == 0:
            assert client.poll() is None
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=60)
        assert client.returncode == 130
        assert "tuner: interrupted\n" in err
        found = json.loads(out)
        assert len(found["windows"]) >= 2
        assert (found["repeat"], found["ended_early"]) == (1000, "interrupted")
    finally:
        client.kill()
        client.wait()


def in_flight(url):
    page = httpx.get(f"{url}/metrics", timeout=60).text
    counts = re.findall(r"^sglang:num_(?:running|queue)_reqs\{.*\} (.*)$", page, re.MULTILINE)
    return sum(map(float, counts))


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(
    ("end", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)]
)
def test_however_it_ends_the_server_is_idle_afterwards(url, tuner, end, code, processes):
    load = ["--concurrency", "8", "--requests", "64", "--output-tokens", "20000"]
    client = subprocess.Popen(
        [sys.executable, "-m", "tuner", "bench", "--url", url, *load, "--processes", processes],
        env={**tuner.env, "SGLANG_API_KEY": KEY},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while in_flight(url) < 8:
            assert client.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        client.send_signal(end)
        _, said = client.communicate(timeout=60)
        assert client.returncode == code
        assert said.endswith("\ntuner: interrupted\n") is (end == signal.SIGINT)
        assert "concurrency 8: 64 requests" in said
        while in_flight(url) > 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        client.kill()
        client.wait()
