"""Who may switch, when, and to what; what the server then is."""

from __future__ import annotations

import pytest

from runners.inside_sglang.tuner_sglang_plugin.hot_switch import token_of

from .conftest import CHAIN, HOT_SWITCH, MARK

ASK = f"""
from sglang.srt.managers.io_struct import SetInternalStateReq
worker = scheduler.draft_worker

def ask(steps, token={token_of(MARK)}, **more):
    asked = {{"speculative_num_steps": steps, **more}}
    if token is not None:
        asked["tuner_token"] = token
    return holder.set_internal_state(SetInternalStateReq(asked)).updated

def status():
    return holder.get_internal_state(None).internal_state["tuner_plugin"]["hot_switch"]
"""

VERSIONS = ("0.5.17", "0.5.23")


@pytest.fixture(params=VERSIONS)
def switched(launch, request):
    def run(script, **given):
        server = launch(ASK + script, version=request.param, env=HOT_SWITCH, **given)
        assert server.code == 0, server.log
        return server

    return run


def test_a_switch_is_in_force_at_once_and_told(switched):
    server = switched(
        """
for steps in (2, 1, 1, 5):
    told.append([ask(steps), worker.speculative_num_steps, worker.speculative_num_draft_tokens])
told.append(status())
"""
    )
    *switches, status = server.told["scheduler"]
    assert switches == [[True, 2, 3], [True, 1, 2], [True, 1, 2], [True, 5, 6]]
    assert {key: status[key] for key in ("steps", "in_force", "switches", "refused")} == {
        "steps": [1, 2, 5],
        "in_force": 5,
        "switches": 3,
        "refused": None,
    }
    assert sorted(status["states"]) == ["1", "2", "5"]
    assert all(set(one) == {"build_s", "memory_gb"} for one in status["states"].values())
    assert server.lines()[1:] == [
        "tuner_sglang_plugin: rank=0/1 steps 5 -> 2",
        "tuner_sglang_plugin: rank=0/1 steps 2 -> 1",
        "tuner_sglang_plugin: rank=0/1 steps 1 -> 5",
    ]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("ask(2, token=7)", "the token is not that of the launch"),
        ("ask(2, token=None)", "the token is not that of the launch"),
        ("ask(3)", "there are states for 1, 2, 5 only"),
        ("ask(2.5)", "there are states for 1, 2, 5 only"),
        ("ask(2, pp_max_micro_batch_size=1)", "it cannot be combined with pp_max_micro_batch_size"),
        ("setattr(scheduler, 'busy', True) or ask(2)", "requests are waiting or running"),
    ],
)
def test_what_is_refused_changes_nothing(switched, asked, reason):
    server = switched(f"told += [{asked}, worker.speculative_num_steps, status()]")
    answer, steps, status = server.told["scheduler"]
    assert (answer, steps, status["in_force"], status["switches"]) == (False, 5, 5, 0)
    assert reason in status["refused"]
    assert any("refused to switch to" in line and reason in line for line in server.lines())


def test_a_second_tuner_is_refused_and_the_first_goes_on(switched):
    """Two tuners on one server: only the one that launched it knows its mark."""
    other = token_of("another-launch")
    server = switched(f"told += [ask(2), ask(1, token={other}), status()['in_force'], ask(1)]")
    assert server.told["scheduler"] == [True, False, 2, True]


def test_other_requests_are_left_to_sglang(switched):
    server = switched(
        """
req = SetInternalStateReq({"pp_max_micro_batch_size": 3})
told += [holder.set_internal_state(req).updated, status()["switches"]]
told += [holder.set_internal_state(SetInternalStateReq({"other": 3})).updated]
"""
    )
    assert server.told["scheduler"] == [True, 0, False]


def test_every_state_has_the_width_of_its_own_launch(switched):
    """0.5.17 would give all of them the width of the start, and draft extend no graph."""
    server = switched(
        """
for steps in (5, 2, 1):
    ask(steps)
    told.append(worker.state.extend_width)
"""
    )
    assert server.told["scheduler"] == [6, 3, 2]


@pytest.mark.parametrize("algorithm", ["EAGLE", "STANDALONE"])
def test_batches_and_acceptance_do_not_move_it(switched, algorithm):
    server = switched(
        """
ask(2)
worker.activate_step_by_batch(7)
worker.on_verify_complete_cpu([0, 0], batch_size=2)
told += [worker.speculative_num_steps, status()["in_force"]]
""",
        arguments=CHAIN | {"speculative_algorithm": algorithm},
    )
    assert server.told["scheduler"] == [2, 2]
