"""`bench`: a window against a server that is there already."""

from __future__ import annotations

import dataclasses
import json
from itertools import islice

import pytest

from runners.base import RunnerError
from runners.load.prompts.prompts import Prompt, PromptSource
from runners.load.running_server import bench, bench_windows
from search_spaces.workload import OperatingPoint, Workload

from .timing import codes

pytestmark = pytest.mark.slow

POINT = OperatingPoint(2)
LOAD = Workload((("chat", 1.0),), 32, (POINT,), requests=4)


def test_speculation_is_learned_from_the_server(server, bodies, recorded):
    server.server_info = json.loads((bodies / "0.5.23-cpu/standalone_server_info.json").read_text())
    server.generate = lambda _n, _b: recorded("0.5.23-cpu/standalone_generate_stream.sse.txt")
    measurement = bench(server.url, LOAD, POINT)
    assert codes(measurement) == []
    assert measurement.accept_length == pytest.approx(1 + 17 / 15)
    assert not measurement.simulated


def test_a_simulated_server_is_marked_and_scaled(server):
    server.server_info = {"model_path": "m", "simulated": {"time_scale": 1000}}
    measurement = bench(server.url, LOAD, POINT)
    assert measurement.simulated
    assert codes(measurement) == []
    assert measurement.window_s > 1  # a few real milliseconds


def test_a_prompt_source_of_ones_own(server):
    class Mine(PromptSource):
        def select(self, count, seed):
            return tuple(Prompt(f"mine/{n}", f"{n} is a number.") for n in range(count))

    server.server_info = {"model_path": "m"}
    measurement = bench(server.url, LOAD, POINT, prompts=Mine())
    assert {sample.prompt for sample in measurement.samples} == {f"mine/{n}" for n in range(8)}


def test_windows_repeat_the_same_load_with_an_emptied_cache(server):
    server.server_info = {"model_path": "m"}
    load = dataclasses.replace(LOAD, warmup_requests=0, output_spread=0.5)
    windows = list(islice(bench_windows(server.url, load, POINT, burst=True), 3))
    assert [window.requests for window in windows] == [8, 8, 8]
    sent = [path for path in server.paths() if path in {"/flush_cache", "/generate"}]
    assert sent == ["/flush_cache", *["/generate"] * 8] * 3
    bodies = [json.dumps(body) for body in server.bodies("/generate")]
    assert sorted(bodies[:8]) == sorted(bodies[8:16]) == sorted(bodies[16:])
    assert len(set(bodies)) == 8


def test_no_server(server):
    server.__exit__()
    with pytest.raises(RunnerError, match="no server at"):
        bench(server.url, LOAD, POINT)
