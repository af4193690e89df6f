"""Switches of a running server: allowed, refused, and their effect."""

from __future__ import annotations

import pytest

from runners.plugin.inside_sglang.tuner_sglang_plugin.status import token_of

from .conftest import CHAIN, HOT_SWITCH, MARK

CLOCK = {"TUNER_CYCLE_CLOCK": "1"}

ASKING = f"""
from sglang.srt.managers.io_struct import SetInternalStateReq
worker = scheduler.draft_worker

def ask(steps, token={token_of(MARK)}, **more):
    asked = {{"speculative_num_steps": steps, **more}}
    if token is not None:
        asked["tuner_token"] = token
    return holder.set_internal_state(SetInternalStateReq(asked)).updated

def status():
    return holder.get_internal_state(None).internal_state["tuner_plugin"]["hot_switch"]

def seen(steps, **given):
    answer, state = ask(steps, **given), worker.state
    return [answer, state.speculative_num_steps, state.speculative_num_draft_tokens,
            state.extend_width, status()["in_force"], status()["refused"]]

def other(**asked):
    return holder.set_internal_state(SetInternalStateReq(asked)).updated
"""

SCRIPT = (
    ASKING
    + f"""
told = {{
    "switches": [seen(2), seen(1), seen(1), seen(5), seen(2.0), seen(2)],
    "wrong token": seen(1, token={token_of("another-launch")}),
    "no token": seen(1, token=None),
    "unknown": seen(3),
    "fraction": seen(1.5),
    "tree": seen(2, speculative_num_draft_tokens=4),
    "combined": seen(1, pp_max_micro_batch_size=1),
}}
scheduler.busy = True
told["busy"] = seen(1)
scheduler.busy = False
worker.activate_step_by_batch(7)
worker.on_verify_complete_cpu([0, 0], batch_size=2)
told["batches"] = status()["in_force"]
told["others"] = [other(pp_max_micro_batch_size=3), other(something=3)]
told["status"] = status()
told["then"] = seen(1)
told["clock"] = [other(tuner_clock=0), other(tuner_clock=0, tuner_token={token_of(MARK)}),
                 holder.get_internal_state(None).internal_state["tuner_plugin"]["clock"]["running"]]
"""
)


@pytest.fixture(scope="module", params=[("0.5.17", "EAGLE"), ("0.5.23", "STANDALONE")])
def server(launch, request):
    """One server of each version, after all requests of the tests."""
    version, algorithm = request.param
    arguments = CHAIN | {"speculative_algorithm": algorithm}
    server = launch(SCRIPT, version=version, arguments=arguments, env=HOT_SWITCH | CLOCK)
    assert server.code == 0, server.log
    return version, server


@pytest.fixture
def told(server):
    return server[1].told["scheduler"]


def test_ready_line_follows_the_states(server):
    version, launched = server
    assert launched.lines()[0] == (
        f"tuner_sglang_plugin: ready rank=0/1 sglang={version} hot_switch=1,2,5 clock=on"
    )


def test_switch_is_in_force_at_once(told):
    """Every state has the width of a separate launch; 0.5.17 would use the width of the start."""
    assert [one[:5] for one in told["switches"]] == [
        [True, 2, 3, 3, 2],
        [True, 1, 2, 2, 1],
        [True, 1, 2, 2, 1],
        [True, 5, 6, 6, 5],
        [True, 2, 3, 3, 2],
        [True, 2, 3, 3, 2],
    ]


def test_every_switch_is_logged(server):
    lines = [line for line in server[1].lines() if "steps" in line and "->" in line]
    assert lines == [
        f"tuner_sglang_plugin: rank=0/1 steps {before} -> {after}"
        for before, after in ((5, 2), (2, 1), (1, 5), (5, 2), (2, 1))
    ]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("wrong token", "the token is not that of the launch: another tuner started this server"),
        ("no token", "the token is not that of the launch: another tuner started this server"),
        ("unknown", "there are states for 1,2,5 only"),
        ("fraction", "there are states for 1,2,5 only"),
        ("tree", "there are states for 1,2,5 only"),
        ("combined", "it cannot be combined with pp_max_micro_batch_size"),
        ("busy", "requests are waiting or running"),
    ],
)
def test_refused_switch_changes_nothing(server, told, asked, reason):
    assert told[asked] == [False, 2, 3, 3, 2, reason]
    assert any(line.endswith(reason) and "refused to switch" in line for line in server[1].lines())


def test_own_tuner_can_switch_after_a_refusal(told):
    assert told["then"] == [True, 1, 2, 2, 1, None]


def test_load_does_not_change_the_setting(told):
    assert told["batches"] == 2


def test_only_its_own_tuner_stops_the_clock(told):
    assert told["clock"] == [False, True, False]


def test_other_requests_go_to_sglang(told):
    assert told["others"] == [True, False]


def test_status(told):
    status = told["status"]
    assert set(status.pop("states")) == {"1", "2", "5"}
    assert status == {
        "steps": [1, 2, 5],
        "in_force": 2,
        "in_force_draft_tokens": 3,
        "switches": 4,
        "refused": "requests are waiting or running",
    }


def test_tree_states(launch):
    """Equal steps with other draft tokens are separate states."""
    script = (
        ASKING
        + """
told += [[seen(steps, speculative_num_draft_tokens=tokens)[:4], status()["in_force_draft_tokens"]]
         for steps, tokens in ((2, 6), (2, 4), (3, 6))]
"""
    )
    arguments = CHAIN | {
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 2,
        "speculative_num_draft_tokens": 6,
    }
    env = HOT_SWITCH | {"TUNER_SWITCHABLE_STEPS": "2/4,2/6,3/6"}
    server = launch(script, arguments=arguments, env=env)
    assert server.code == 0, server.log
    assert server.lines()[0].endswith("hot_switch=2/4,2/6,3/6 clock=off")
    assert server.told["scheduler"] == [
        [[True, 2, 6, 6], 6],
        [[True, 2, 4, 4], 4],
        [[True, 3, 6, 6], 6],
    ]
