"""The simulated plugin: its log, status, switches and refusals."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest

from runners.plugin.protocol import bucket_seconds, token_of
from runners.simulated_server.engine.plugin import simulated_plugin
from runners.simulated_server.launch.environment import read_environment
from runners.simulated_server.launch.flags import parse_flags, resolve

pytestmark = pytest.mark.slow

MARK = "mark"
STEPS = {"TUNER_SWITCHABLE_STEPS": "1,2,5", "TUNER_LAUNCH": MARK}
TREES = STEPS | {"TUNER_SWITCHABLE_STEPS": "2/6,3/4,3/6"}
CLOCK = {"TUNER_CYCLE_CLOCK": "1"}


def status(served):
    return served.client.get("/server_info").json()["internal_states"][0].get("tuner_plugin")


def switch(served, steps, token=None, **more):
    token = token_of(MARK) if token is None else token
    body = {"server_args": {"speculative_num_steps": steps, "tuner_token": token} | more}
    return served.client.post("/set_internal_state", json=body).json()


def misbehaviour(**how):
    return {"TUNER_SIM_MISBEHAVE": json.dumps([how])}


def lines(served):
    return re.findall(r"^tuner_sglang_plugin: (.*)$", served.log, re.MULTILINE)


@pytest.fixture(scope="module")
def both(start, speculation):
    env = STEPS | CLOCK
    return start(*speculation(5), "--tp-size", "2", env=env, scale=20.0).wait_ready()


def test_no_plugin_without_its_variables(start, speculation):
    served = start(*speculation(5)).wait_ready()
    assert status(served) is None
    assert lines(served) == []


def test_log_and_status(both):
    said = lines(both)[:2]
    assert said == [
        f"ready rank={rank}/2 sglang=0.5.23 hot_switch=1,2,5 clock=on" for rank in (0, 1)
    ]
    found = status(both)
    assert found["protocol"] == 1
    hot = found["hot_switch"]
    assert hot["steps"] == [1, 2, 5]
    assert set(hot["states"]) == {"1", "2", "5"}
    assert found["clock"]["batches"] is not None


def test_a_switch_applies_to_every_rank(both):
    before = status(both)["hot_switch"]
    assert before["in_force"] == 5
    assert switch(both, 2) == [True]
    after = status(both)["hot_switch"]
    assert (after["in_force"], after["switches"]) == (2, before["switches"] + 1)
    assert lines(both)[-2:] == ["rank=0/2 steps 5 -> 2", "rank=1/2 steps 5 -> 2"]
    assert switch(both, 5) == [True]


@pytest.mark.parametrize(("steps", "token"), [(1, 0), (1, token_of("another")), (3, None)])
def test_a_refused_switch_changes_nothing(both, steps, token):
    before = status(both)["hot_switch"]
    assert switch(both, steps, token) == [False]
    after = status(both)["hot_switch"]
    reason = after["refused"]
    assert reason
    assert after | {"refused": None} == before | {"refused": None}
    assert [f"rank={rank}/2 refused to switch to {steps}: {reason}" for rank in (0, 1)] == lines(
        both
    )[-2:]


def test_trees_switch_by_steps_and_draft_tokens(start, speculation):
    served = start(*speculation(3, 2, 6), env=TREES | CLOCK, scale=20.0).wait_ready()
    assert lines(served)[0] == "ready rank=0/1 sglang=0.5.23 hot_switch=2/6,3,3/6 clock=on"
    assert set(status(served)["hot_switch"]["states"]) == {"2/6", "3", "3/6"}
    assert switch(served, 2) == [False], "a chain of two steps is not among the settings"
    assert status(served)["hot_switch"]["refused"] == "there are states for 2/6,3,3/6 only"
    widths = {}
    for steps, tokens in ((2, 6), (3, 4), (3, 6)):
        assert switch(served, steps, speculative_num_draft_tokens=tokens) == [True]
        hot = status(served)["hot_switch"]
        assert (hot["in_force"], hot["in_force_draft_tokens"]) == (steps, tokens)
        before = status(served)["clock"]["batches"].get("1", {}).get("verify", {"total_s": 0.0})
        served.generate(f"{steps}/{tokens}", 32)
        after = status(served)["clock"]["batches"]["1"]["verify"]
        verifies = after["count"] - before.get("count", 0)
        widths[steps, tokens] = (after["total_s"] - before["total_s"]) / verifies
    assert lines(served)[-3:] == [
        "rank=0/1 steps 3/6 -> 2/6",
        "rank=0/1 steps 2/6 -> 3",
        "rank=0/1 steps 3 -> 3/6",
    ]
    # Verify of four tokens is faster than of six, at any number of steps.
    assert widths[3, 4] < widths[2, 6] == pytest.approx(widths[3, 6])


@pytest.mark.parametrize(
    ("flags", "env", "reason"),
    [
        ((3, 2, 8), STEPS, "hot_switch: the server starts with 3/8"),
        ((3, 2, 8), TREES, "hot_switch: the server starts with 3/8"),
        ((3,), TREES, "hot_switch: --speculative-eagle-topk is 1, and 2/6 is no chain"),
        ((3, 2, 8), TREES | {"TUNER_SWITCHABLE_STEPS": "1/4,3/8"}, "hot_switch: at --spec"),
        ((3, 2, 8), TREES | {"TUNER_SWITCHABLE_STEPS": "3/8,3/3"}, "hot_switch: at --spec"),
        (None, STEPS, "hot_switch: speculative_algorithm=None"),
        ((2,), STEPS, "hot_switch: the server starts with 2,"),
        ((5,), STEPS | misbehaviour(kind="plugin_refused"), "hot_switch: verified with"),
        ((5,), CLOCK | misbehaviour(kind="plugin_refused"), "clock: verified with"),
    ],
)
def test_an_unsupported_request_is_refused(speculation, flags, env, reason):
    given = parse_flags(["--model-path", "m", *(speculation(*flags) if flags else ())])
    simulation = read_environment(env)
    plugin = simulated_plugin(
        simulation, resolve(given), "0.5.23", None, state_s=0.0, faults=simulation.misbehave
    )
    assert plugin.refusal().startswith(f"tuner_sglang_plugin: REFUSED {reason}")


def test_a_refusal_ends_the_server(start):
    served = start(env=STEPS)
    assert served.exit_status() == 78
    assert "tuner_sglang_plugin: REFUSED hot_switch: speculative_algorithm=None" in served.log


def test_the_clock_keeps_the_cost_models_times(start, speculation, kimi):
    scale = 50.0
    served = start(*speculation(2), env=CLOCK, scale=scale).wait_ready()
    served.generate("one", 64)
    served.generate("two", 64)
    parts = status(served)["clock"]["batches"]["1"]
    verify, rest = parts["verify"], parts["rest"]
    width = kimi["verify"]["base_ms"] + 3 * kimi["verify"]["per_token_ms"]
    assert 1000 * scale * verify["total_s"] / verify["count"] == pytest.approx(width)
    ((bucket, count),) = verify["buckets"].items()
    assert count == verify["count"] == verify["graphs"]
    assert 1000 * scale * bucket_seconds(int(bucket)) == pytest.approx(width, rel=0.011)
    # No cycle follows the last cycle of an answer.
    assert parts["cycle"]["count"] == rest["count"] == verify["count"] - 2
    forwards = sum(parts[name]["total_s"] / verify["count"] for name in ("draft", "draft_extend"))
    cycle = parts["cycle"]["total_s"] / parts["cycle"]["count"]
    assert cycle == pytest.approx(
        forwards + (verify["total_s"] / verify["count"]) + rest["total_s"] / rest["count"]
    )


def test_without_speculation_a_cycle_is_a_decode(start):
    served = start(env=CLOCK).wait_ready()
    served.generate("one", 16)
    assert set(status(served)["clock"]["batches"]["1"]) == {"verify", "rest", "cycle"}


def test_rest_includes_the_draft_of_other_algorithms(start):
    flags = ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8")
    served = start(*flags, env=CLOCK).wait_ready()
    served.generate("one", 16)
    clock = status(served)["clock"]
    assert clock["parts"] == ["verify"]
    assert set(clock["batches"]["1"]) == {"verify", "rest", "cycle"}


def per_call(served, part):
    found = status(served)["clock"]["batches"]["1"][part]
    return found["total_s"] / found["count"], found["graphs"] / found["count"]


@pytest.mark.parametrize(
    ("kind", "part", "graphs"),
    [("switch_eager", "draft_extend", 0.0), ("switch_slow", "verify", 1.0)],
)
def test_a_slow_switched_state(start, speculation, kind, part, graphs):
    env = CLOCK | misbehaviour(kind=kind, factor=3.0)
    switched = start(*speculation(5), env=STEPS | env).wait_ready()
    own = start(*speculation(2), env=env).wait_ready()
    assert switch(switched, 2) == [True]
    for one in (switched, own):
        one.generate("one", 64)
    seconds, share = per_call(switched, part)
    assert (seconds, share) == (pytest.approx(3.0 * per_call(own, part)[0]), graphs)
    assert per_call(own, part)[1] == 1.0


def test_a_switch_that_is_ignored_or_undone(start, speculation):
    ignored = start(*speculation(5), env=STEPS | misbehaviour(kind="switch_ignored")).wait_ready()
    assert switch(ignored, 1) == [True]
    assert status(ignored)["hot_switch"]["in_force"] == 5
    undone = STEPS | misbehaviour(kind="switch_undone", after_requests=1)
    served = start(*speculation(5), env=undone).wait_ready()
    assert switch(served, 1) == [True]
    served.generate("one", 16)
    hot = status(served)["hot_switch"]
    assert (hot["in_force"], hot["switches"]) == (5, 2)


def test_a_missing_or_half_loaded_plugin(start, speculation):
    env = STEPS | CLOCK | misbehaviour(kind="plugin_missing")
    missing = start(*speculation(5), env=env).wait_ready()
    assert status(missing) is None
    assert switch(missing, 1) == [False]
    env = STEPS | misbehaviour(kind="plugin_half")
    half = start(*speculation(5), "--tp-size", "4", env=env).wait_ready()
    assert [line.split()[1] for line in lines(half)] == ["rank=0/4", "rank=1/4"]


def test_switching_the_steps(both):
    both.generate("at five", 64)
    assert switch(both, 2) == [True]
    info = both.client.get("/server_info").json()
    for where in (info, *info["internal_states"]):
        assert where["speculative_num_steps"] == 2
        assert where["speculative_num_draft_tokens"] == 3
    meta = both.generate("at two", 64).json()["meta_info"]
    assert len(meta["spec_correct_drafts_histogram"]) <= 3
    # As in SGLang, the rate uses the initial width.
    assert meta["spec_num_proposed_drafts"] == 5 * meta["spec_verify_ct"]
    assert switch(both, 5) == [True]


def test_a_server_without_the_plugin_does_not_switch(start, speculation):
    served = start(*speculation(5)).wait_ready()
    body = {"server_args": {"speculative_num_steps": 1}}
    assert served.client.post("/set_internal_state", json=body).json() == [False]
    assert "Updating speculative_num_steps is not supported." in served.log


def test_switching_is_refused_while_busy(start, speculation):
    env = {"TUNER_SWITCHABLE_STEPS": "1,2", "TUNER_LAUNCH": MARK}
    served = start(*speculation(2), "--enable-metrics", env=env, scale=2.0).wait_ready()
    worker = threading.Thread(target=served.generate, args=("long", 4000))
    worker.start()
    # A health check uses fewer tokens.
    used = re.compile(r"^sglang:num_used_tokens\{.*\} (.*)$", re.MULTILINE)
    deadline = time.monotonic() + 60
    while float(used.search(served.client.get("/metrics").text)[1]) <= 1000:
        assert time.monotonic() < deadline
    assert switch(served, 1) == [False]
    served.client.post("/abort_request", json={"abort_all": True})
    worker.join(60)
    assert not worker.is_alive()
