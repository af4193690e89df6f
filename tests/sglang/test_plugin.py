"""The plugin inside the real SGLang: several settings in one launch, and the cycle clock.

One server serves nearly all tests. The answers of a separate launch at 3 steps come from the server
of kind `standalone`, which runs before (`test_plugin_long.py` has the other steps).
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from runners.plugin.inside_sglang.tuner_sglang_plugin.hot_switch import BUSY
from runners.plugin.inside_sglang.tuner_sglang_plugin.log import NAME
from runners.plugin.inside_sglang.tuner_sglang_plugin.status import token_of

from .servers import KINDS, LiveServer, wait_until_it_runs

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(2400)]

STEPS = KINDS["switchable"].steps
TEXT = "def server_args(self, model_path):"
TOKENS = 48


def status(server: LiveServer) -> dict[str, Any]:
    return server.info()["internal_states"][0]["tuner_plugin"]


def ask(server: LiveServer, token: int | None = None, **asked: float) -> bool:
    """Send a request like the tuner; return whether it was accepted."""
    token = token_of(server.identity.mark) if token is None else token
    body = {"server_args": asked | {"tuner_token": token}}
    (granted,) = server.post("/set_internal_state", body).json()
    return granted


def switch(server: LiveServer, steps: int) -> None:
    """Switch after the server has become idle."""
    server.flush()
    assert ask(server, speculative_num_steps=steps), status(server)["hot_switch"]["refused"]


def answer(server: LiveServer) -> dict[str, Any]:
    """Result of a greedy request after a flush: a cached prefix would change the drafts."""
    server.flush()
    return seen_of(server.generate(TEXT, TOKENS))


def seen_of(got: dict[str, Any]) -> dict[str, Any]:
    """Parts of an answer that must not depend on the way to a setting."""
    meta = got["meta_info"]
    return {
        "output_ids": got["output_ids"],
        "verifies": meta["spec_verify_ct"],
        "accept_length": meta["spec_accept_length"],
        "histogram": meta["spec_correct_drafts_histogram"],
    }


@pytest.fixture(scope="session")
def own_launch() -> dict[int, dict[str, Any]]:
    """Answers of separate launches, by steps."""
    return {}


@pytest.mark.kind("standalone")
def test_separate_launch_at_3_steps(server, own_launch):
    own_launch[3] = answer(server)
    assert status(server)["hot_switch"] is None
    assert 1 < own_launch[3]["accept_length"] < 4, "otherwise there is nothing to compare"


@pytest.mark.kind("switchable")
def test_switched_settings_answer_like_separate_launches(live, own_launch):
    if 3 not in own_launch:
        own_launch[3] = answer(live("standalone"))
    server = live("switchable")
    seen: dict[int, list[dict[str, Any]]] = {steps: [] for steps in STEPS}
    for steps in (*STEPS, *reversed(STEPS)):
        switch(server, steps)
        assert status(server)["hot_switch"]["in_force"] == steps
        seen[steps].append(answer(server))
    for steps, (first, second) in seen.items():
        assert first == second, "the way to a setting does not matter"
        assert first["output_ids"] == own_launch[3]["output_ids"], "greedy text is the target's"
        assert len(first["histogram"]) <= steps + 1
        assert 1 < first["accept_length"] <= steps + 1
    assert seen[3][0] == own_launch[3]
    lengths = [seen[steps][0]["accept_length"] for steps in STEPS]
    assert lengths == sorted(set(lengths)), "deeper drafts yield more"


@pytest.mark.kind("switchable")
def test_ready_line_and_status_list_the_states(server):
    log = server.log.read_text()
    assert f"{NAME}: ready rank=0/1 sglang=0.5.23 hot_switch=1,2,3,5 clock=on\n" in log
    told = status(server)["hot_switch"]
    assert told["steps"] == list(STEPS)
    assert set(told["states"]) == set(map(str, STEPS))


@pytest.mark.kind("switchable")
def test_wrong_token_and_unknown_steps_are_refused(server):
    switch(server, 2)
    before = status(server)["hot_switch"]
    assert not ask(server, token_of("another-launch"), speculative_num_steps=5)
    assert not ask(server, speculative_num_steps=4)
    assert not ask(server, speculative_num_steps=5, pp_max_micro_batch_size=1)
    after = status(server)["hot_switch"]
    assert after | {"refused": None} == before | {"refused": None}
    assert after["refused"] == "it cannot be combined with pp_max_micro_batch_size"
    switch(server, 5)


@pytest.mark.kind("switchable")
def test_busy_server_refuses_a_switch(server):
    switch(server, 5)
    got: list[dict[str, Any]] = []
    running = threading.Thread(target=lambda: got.append(server.generate(TEXT, 400)))
    running.start()
    try:
        wait_until_it_runs(server)
        granted = ask(server, speculative_num_steps=1)
        told = status(server)["hot_switch"]
    finally:
        running.join()
    assert (granted, told["in_force"], told["refused"]) == (False, 5, BUSY)
    assert len(got[0]["meta_info"]["spec_correct_drafts_histogram"]) == 6


@pytest.mark.kind("switchable")
def test_clock_counts_every_verify(server):
    switch(server, 3)
    before = status(server)["clock"]["batches"].get("1", {})
    verifies = answer(server)["verifies"]
    server.flush()
    after = status(server)["clock"]["batches"]["1"]

    def grown(part: str, key: str = "count") -> float:
        return after[part][key] - before.get(part, {}).get(key, 0)

    # Cycles that begin before the last answer is known to be complete count too.
    assert verifies <= grown("verify") <= verifies + 2
    assert grown("draft") == grown("verify") == grown("draft_extend")
    assert grown("cycle") == grown("rest") == grown("verify") - 1, "the last one has no end"
    assert all(after[part]["graphs"] == 0 for part in after), "a CPU has none"
    parts = sum(grown(part, "total_s") for part in ("draft", "verify", "draft_extend", "rest"))
    last = grown("cycle", "total_s") / grown("cycle") * 10
    assert grown("cycle", "total_s") <= parts <= grown("cycle", "total_s") + last
    for part in after.values():
        assert sum(part["buckets"].values()) == part["count"]


@pytest.mark.kind("switchable")
def test_clock_can_be_stopped(server):
    switch(server, 3)
    assert ask(server, tuner_clock=0)
    before = status(server)["clock"]
    answer(server)
    assert status(server)["clock"] == before
    assert before["running"] is False
    assert ask(server, tuner_clock=1)


@pytest.mark.kind("plain")
def test_clock_without_speculation(server):
    before = status(server)["clock"]["batches"].get("1", {}).get("verify", {}).get("count", 0)
    server.generate(TEXT, 16)
    server.flush()
    told = status(server)["clock"]
    assert set(told["batches"]["1"]) == {"verify", "cycle", "rest"}
    assert 15 <= told["batches"]["1"]["verify"]["count"] - before <= 17
    assert told["parts"] == ["verify"]
