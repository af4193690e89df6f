"""`tuner bench` against a server that somebody else started."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from runners.base import RunnerError
from runners.ports import free_port_block
from runners.server_facts import read_server_info


@pytest.fixture
def url(tuner):
    port = free_port_block()
    argv = [
        sys.executable, "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5",
        "--port", str(port), "--speculative-algorithm", "EAGLE3",
        "--speculative-draft-model-path", "draft", "--speculative-num-steps", "2",
        "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3",
    ]  # fmt: skip
    server = subprocess.Popen(
        argv,
        env={**tuner.env, "TUNER_SIM_TIME_SCALE": "40"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None
            assert time.monotonic() < deadline
            try:
                read_server_info(f"http://127.0.0.1:{port}")
                break
            except RunnerError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_bench(tuner, url):
    done = tuner.run(
        "bench", "--url", url, "--requests", "6", "--output-tokens", "64", "--concurrency", "2",
        "--json",
    )  # fmt: skip
    measured = json.loads(done.stdout)
    assert measured["simulated"] is True
    assert measured["invalid"] == []
    assert measured["requests"] == 6
    assert measured["point"] == {"concurrency": 2}
    assert 1.3 < measured["accept_length"] < 1.8  # 1.527 by the profile
    text = tuner.run("bench", "--url", url, "--requests", "2", "--output-tokens", "16").stdout
    assert "(simulated)" in text
    assert "accept length" in text


def test_nobody_there(tuner):
    port = free_port_block()
    done = tuner.run("bench", "--url", f"http://127.0.0.1:{port}", code=4)
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_more_requests_than_prompts(tuner, url):
    done = tuner.run("bench", "--url", url, "--requests", "100000", code=2)
    assert "distinct prompts" in done.stderr
