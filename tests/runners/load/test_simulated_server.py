"""End to end: the load generator and a process of the simulated server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest
import yaml

from runners.base import RunnerError
from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import BuiltInPrompts
from runners.load.running_server import bench
from runners.server_info import read_server
from runners.simulated_server.engine.profile import PROFILES
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

from .caching_proxy import CachingProxy
from .timing import codes

pytestmark = pytest.mark.slow

TIME_SCALE = 20
POINT = OperatingPoint(1)
LOAD = Workload((("chat", 0.5), ("code", 0.5)), 48, (POINT,), requests=6)
EAGLE3 = (
    "--speculative-algorithm=EAGLE3",
    "--speculative-draft-model-path=draft",
    "--speculative-num-steps=5",
    "--speculative-eagle-topk=1",
    "--speculative-num-draft-tokens=6",
)


def quick_profile(folder):
    """The default machine with a start-up of no simulated time."""
    data = yaml.safe_load((PROFILES / "kimi.yaml").read_text())
    path = folder / "quick.yaml"
    path.write_text(yaml.safe_dump(data | {"startup": dict.fromkeys(data["startup"], 0.0)}))
    return str(path)


@contextlib.contextmanager
def simulated_server(log, *flags, time_scale=TIME_SCALE):
    """Start a server of `TUNER_SIM_PROFILE`; defaults to a quick one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "runners.simulated_server", "--model-path", "target"]
    env = os.environ | {
        "TUNER_SIM_PROFILE": os.environ.get("TUNER_SIM_PROFILE") or quick_profile(log.parent),
        "TUNER_SIM_TIME_SCALE": str(time_scale),
        "TUNER_SIM_SEED": "1",
        "TUNER_SIM_LAUNCH_INDEX": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*argv, "--host", "127.0.0.1", "--port", str(port), *flags],
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(process, url, log)
        yield process, url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def wait_until_ready(process, url, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url + "/health", timeout=30, trust_env=False).status_code == 200:
                return
        time.sleep(0.05)
    pytest.fail(log.read_text())


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with simulated_server(tmp_path_factory.mktemp("plain") / "log") as (_, url):
        yield url


@pytest.fixture(scope="module")
def eagle3(tmp_path_factory):
    with simulated_server(tmp_path_factory.mktemp("eagle3") / "log", *EAGLE3) as (_, url):
        yield url


def test_plain(plain):
    measurement = bench(plain, LOAD, POINT)
    assert codes(measurement) == []
    assert measurement.simulated
    assert measurement.accept_length is None
    assert measurement.output_tokens == 6 * 48
    # 90 tok/s with long answers; the time scale multiplies the client's overhead by 20.
    assert 20 < measurement.output_tok_s < 92


def test_speculation(eagle3):
    assert read_server(eagle3).speculation == Speculation("EAGLE3", 5, 1, 6)
    measurement = bench(eagle3, LOAD, POINT)
    assert codes(measurement) == []
    assert measurement.output_tokens == 6 * 48
    assert 1 < measurement.accept_length < 6
    verify = sum(sample.verify_calls for sample in measurement.samples)
    correct = sum(sample.correct_drafts for sample in measurement.samples)
    assert measurement.accept_length == 1 + correct / verify
    assert sum(measurement.histogram) == verify
    assert sum(k * count for k, count in enumerate(measurement.histogram)) == correct


def test_equal_loads_have_equal_acceptance(eagle3):
    first, second = bench(eagle3, LOAD, POINT), bench(eagle3, LOAD, POINT)
    assert first.workload_fingerprint == second.workload_fingerprint
    assert first.accept_length == second.accept_length
    assert first.histogram == second.histogram


def test_concurrency_raises_the_throughput(eagle3):
    one = bench(eagle3, LOAD, POINT)
    four = bench(eagle3, LOAD, OperatingPoint(4))
    assert codes(four) == []
    assert four.requests == 16
    assert four.output_tok_s > 1.3 * one.output_tok_s


@pytest.mark.parametrize(("flags", "concurrency", "by_prompt"), [((), 1, True), (EAGLE3, 8, False)])
def test_answers_of_a_caching_proxy_are_invalid(tmp_path, flags, concurrency, by_prompt):
    point = OperatingPoint(concurrency, requests=2 * concurrency + 4)
    load = Workload(LOAD.prompts, 128, (point,))
    with (
        simulated_server(tmp_path / "log", *flags, time_scale=4) as (_, url),
        CachingProxy(url, by_prompt=by_prompt) as proxy,
    ):
        first, second = (bench(proxy.url, load, point) for _ in range(2))
    assert codes(first) == []
    assert "too_fast" in codes(second)
    assert first.accept_length == second.accept_length
    assert second.e2e_p50_ms < first.e2e_p50_ms / 4


def generator(url, **more):
    return LoadGenerator(
        url, LOAD, BuiltInPrompts(LOAD.prompts), time_scale=TIME_SCALE, simulated=True, **more
    )


def test_unexpected_speculation_is_invalid(eagle3):
    measurement = generator(eagle3).measure(POINT, speculation=Speculation())
    assert codes(measurement) == ["acceptance_unexpected"]


@contextlib.contextmanager
def under_load(url, act):
    """Call `act` after the server has decoded for a while."""

    def watch():
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                told = client.get("/server_info").json()["simulated"]["clock"]
                if told["forwards"] > 50:
                    act()
                    return
                time.sleep(0.01)

    # The flush resets the counts of earlier tests.
    httpx.post(url + "/flush_cache?timeout=30", timeout=60, trust_env=False).raise_for_status()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        watcher.join()


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGKILL, "server_gone"), (signal.SIGSTOP, "stall")]
)
def test_a_server_that_dies_or_hangs_under_load(tmp_path, number, kind):
    long = Workload(LOAD.prompts, 8000, (POINT,), requests=6)
    with simulated_server(tmp_path / "log") as (process, url):
        load = LoadGenerator(url, long, BuiltInPrompts(long.prompts), stall_timeout_s=1.0)
        with (
            under_load(url, lambda: os.killpg(process.pid, number)),
            pytest.raises(RunnerError) as caught,
        ):
            load.measure(OperatingPoint(4), speculation=Speculation())
    failure = caught.value.failure
    assert (failure.kind, failure.phase, failure.fault) == (kind, "load", "configuration")


def test_ctrl_c_leaves_the_server_idle(plain):
    long = Workload(LOAD.prompts, 8000, (POINT,), requests=6)
    load = LoadGenerator(plain, long, BuiltInPrompts(long.prompts))
    with (
        under_load(plain, lambda: os.kill(os.getpid(), signal.SIGINT)),
        pytest.raises(KeyboardInterrupt),
    ):
        load.measure(OperatingPoint(4), speculation=Speculation())
    deadline = time.monotonic() + 10
    while httpx.post(plain + "/flush_cache", trust_env=False).status_code != 200:
        assert time.monotonic() < deadline, "the server still generates after the abort"
        time.sleep(0.05)
    assert codes(bench(plain, LOAD, POINT)) == []
