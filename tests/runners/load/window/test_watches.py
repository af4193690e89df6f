"""Watches: the server's log, identity, clock and setting before and after a window."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from results.records import BatchCycles, CycleTimes, PartTime
from runners.load.window.watches import LogWatch, ServerIdentityWatch, compile_lines
from runners.plugin.cycle_times import PluginWatch, slower_than_clock
from search_spaces.configuration import Setting
from search_spaces.workload import OperatingPoint

from ..windows import PLAIN, Load


def codes(found):
    return [reason.split(":", 1)[0] for reason in found]


# Lines of real logs and of the sources that print them; see `runners.load.window.watches`.
COMPILING = [
    "AUTOTUNE mm(64x4096, 4096x4096)",
    "Triton autotuning for function _fwd_kernel,",
    "[2026-11-29 18:59:55 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time",
    "[2026-11-29 18:59:55] Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=1, K=2",
    "[2026-11-29 18:59:55] Running FlashInfer autotune with cache: /cache/x.json",
    "2026-11-29 18:59:55,1 - INFO - [Autotuner]: Autotuning process starts ...",
    "2026-11-29 18:59:55,1 - INFO - flashinfer.jit: Loading JIT ops: batch_decode",
    "[2026-11-29 18:59:55] Capture target verify CUDA graph begin. backend=full, bs=[1, 2, 4]",
    "[2026-11-29 18:59:55] Capture draft extend CUDA graph begin. step=1, bs=[1]",
    "[2026-11-29 18:59:55] Capture cpu graph bs [1, 2]",
    "Capturing batches (bs=4 avail_mem=70.78 GB):  33%|###       | 1/3 [00:00<00:01]",
    "[2026-11-29 18:59:55] Compiling a graph for dynamic shape takes 3.10 s",
    "[1/2] /usr/local/cuda/bin/nvcc --generate-dependencies -o k.o",
]
QUIET = [
    "[2026-11-29 18:59:55] server_args=ServerArgs(cuda_graph_config='Capture cuda graph', x=1)",
    "[2026-11-29 18:59:55] Decode batch, #running-req: 1, accept len: 1.72, cuda graph: True",
    "[2026-11-29 18:59:55] Prefill batch, #new-seq: 1, #new-token: 12, #cached-token: 0",
    '[2026-11-29 18:59:55] INFO:     127.0.0.1:4 - "POST /generate HTTP/1.1" 200 OK',
    "[2026-11-29 18:59:55] Cache flushed successfully!",
    "[2026-11-29 18:59:55] KV cache pool is full. Retract requests. #retracted_reqs: 1",
]


@pytest.mark.parametrize("line", COMPILING)
def test_compile_lines_finds_compiling(line):
    assert compile_lines(f"{QUIET[1]}\n{line}\n{QUIET[2]}\n") == [line]


def test_compile_lines_ignores_other_lines():
    assert compile_lines("\n".join(QUIET)) == []


def test_log_watch_reports_compiling_only_inside_the_window(tmp_path):
    log = tmp_path / "server.log"
    watch = LogWatch(log)
    watch.begin()  # there is no log yet
    assert watch.end() == ()
    log.write_text(COMPILING[0] + "\n")
    watch.begin()
    with log.open("a") as out:
        out.write("\n".join(QUIET) + "\n")
    assert watch.end() == ()
    with log.open("a") as out:
        out.write(COMPILING[7] + "\n")
    (reason,) = watch.end()
    assert codes([reason]) == ["compiled"]
    assert "Capture target verify CUDA graph begin" in reason
    watch.begin()
    assert watch.end() == ()


FACTS = {"model_path": "target", "version": "0.5.23", "random_seed": 7, "startup_time": {"a": 1.5}}


def test_identity_watch_accepts_the_same_server(server):
    server.server_info = FACTS | {"internal_states": [{"avg_spec_accept_length": 2.0}]}
    watch = ServerIdentityWatch(server.url, launched=FACTS)
    watch.begin()
    server.server_info = FACTS | {"internal_states": [{"avg_spec_accept_length": 2.5}]}
    assert watch.end() == ()


@pytest.mark.parametrize(
    "change", [{"random_seed": 8}, {"startup_time": {"a": 1.6}}, {"version": "0.5.24"}]
)
def test_identity_watch_reports_a_restart(server, change):
    server.server_info = FACTS
    watch = ServerIdentityWatch(server.url)
    watch.begin()
    server.server_info = FACTS | change
    assert codes(watch.end()) == ["server_restarted"]


def test_identity_watch_reports_another_server(server):
    server.server_info = FACTS
    watch = ServerIdentityWatch(server.url, launched=FACTS | {"random_seed": 1})
    watch.begin()
    (reason,) = watch.end()
    assert codes([reason]) == ["server_not_ours"]
    assert "random_seed was 1 and is 7" in reason


def simulated(behind_s, busy_s, scale=4.0):
    clock = {"busy_s": busy_s, "behind_s": behind_s}
    return FACTS | {"simulated": {"time_scale": scale, "clock": clock}}


@pytest.mark.parametrize(
    ("behind_s", "busy_s", "believed"),
    [
        (1.1, 10.0, False),
        (0.9, 10.0, True),
        (0.3, 1.0, True),  # 0.075 real seconds: a debt that may yet be paid back
        (0.5, 1.0, False),
    ],
)
def test_identity_watch_reports_a_slow_simulation(server, behind_s, busy_s, believed):
    server.server_info = simulated(99.0, 100.0)  # what was before the flush does not count
    watch = ServerIdentityWatch(server.url)
    watch.begin()
    server.server_info = simulated(behind_s, busy_s)
    assert codes(watch.end()) == ([] if believed else ["simulation_behind"])


def test_identity_watch_reports_an_unreadable_server(server):
    server.server_info = FACTS
    watch = ServerIdentityWatch(server.url, timeout_s=0.5)
    watch.begin()
    server.server_info = "hang"
    assert codes(watch.end()) == ["server_unreadable"]


def paced(tok_s, clock_ms, **changes):
    """Answers of 101 tokens at `tok_s`, and a clock whose cycles take `clock_ms`."""
    load = Load(PLAIN, OperatingPoint(1), pace=lambda _now: 1 / tok_s)
    for request in load.requests:
        request.tokens = 101
    seconds = clock_ms / 1000
    cycle = PartTime(1600, 1600 * seconds, seconds)
    values = {
        "point": load.point,
        "samples": tuple(load.evidence().samples),
        "cycle": CycleTimes("plugin", (BatchCycles(1, cycle, {}),)),
    }
    return SimpleNamespace(**(values | changes))


@pytest.mark.parametrize(
    ("measurement", "scale", "believed"),
    [
        (paced(68.4, 14.5), 1.0, True),
        (paced(51.5, 14.5), 1.0, False),
        (paced(51.5, 14.5), 40.0, True),  # 12 ms of real time per answer: a busy client
        (paced(51.5, 14.5, point=OperatingPoint(8)), 1.0, True),  # the prefills of others
        (paced(51.5, 14.5, cycle=None), 1.0, True),
    ],
)
def test_slower_than_clock_compares_streams_and_cycles(measurement, scale, believed):
    reason = slower_than_clock(measurement, scale)
    assert codes([] if reason is None else [reason]) == ([] if believed else ["slower_than_clock"])


def test_slower_than_clock_counts_verifies_not_tokens():
    load = Load(point=OperatingPoint(1), pace=lambda _now: 0.015)
    samples = tuple(load.evidence().samples)
    assert slower_than_clock(paced(68.4, 14.5, samples=samples), 1.0) is None
    assert slower_than_clock(paced(68.4, 10.0, samples=samples), 1.0) is not None


def switched(in_force, switches):
    in_force = Setting.read(str(in_force))
    hot = {
        "steps": [1, 2, 5],
        "in_force": in_force.num_steps,
        "in_force_draft_tokens": in_force.num_draft_tokens,
        "switches": switches,
    }
    plugin = {"protocol": 1, "plugin": "1", "hot_switch": hot, "clock": None}
    return FACTS | {"internal_states": [{"tuner_plugin": plugin}]}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (switched(2, 3), switched(2, 3), None),
        (switched(2, 3), switched(5, 4), "2 were active before the window, and 5 after"),
        (switched(5, 3), switched(5, 3), "5 were active before"),
        (switched("2/6", 3), switched("2/6", 3), "2/6 were active before the window"),
        (switched(2, 3), switched(2, 5), "switched 2 times inside the window"),
        (switched(2, 3), FACTS, "does not report the active setting"),
    ],
)
def test_plugin_watch_reports_another_setting(server, before, after, said):
    server.server_info = before
    watch = PluginWatch(server.url, lambda: Setting(2), time_scale=1.0)
    watch.begin()
    server.server_info = after
    reasons = watch.end()
    assert codes(reasons) == ([] if said is None else ["setting_not_in_force"])
    assert (said or "") in "".join(reasons)


def test_plugin_watch_skips_a_server_that_is_not_switched(server):
    server.server_info = switched(2, 3)
    watch = PluginWatch(server.url, lambda: None, time_scale=1.0)
    watch.begin()
    server.server_info = FACTS
    assert watch.end() == ()
