"""Nothing of a switched server is scored that was not held against what is known to be right."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from results.records import TrialState
from search_spaces.configuration import Setting, largest
from search_spaces.study_file.load import parse_study
from tuner.planners.registry import planner_names
from tuner.studies import assembly

from ..conftest import small_text
from ..replays import play, speed
from .test_faithful import clock
from .test_hot_switch import Killed, Switchable, clocked, end_leftovers_of, steps

NARROW = """\
    - algorithm: EAGLE3
      num_steps: [2, 3]
      topk: [2]
      num_draft_tokens: [4, 8]
"""
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
TODAY = (
    "NCCL_PROTO=LL python -m sglang.launch_server --model {model} --tp 8 --max-running-requests 64 "
    "--speculative-algo EAGLE3 --speculative-draft-model-path lightseekorg/kimi-k2.5-eagle3 "
    "--speculative-num-steps {steps} --speculative-eagle-topk {topk} "
    "--speculative-num-draft-tokens {tokens}"
)


def trees(*settings, topk=2, today=None, model="moonshotai/Kimi-K2.5", protos="[null, LL]"):
    """A study of trees, each with its own steps and draft tokens."""
    whole = small_text(steps="[2, 3]", topk="[2]", protos=protos, launches=99)
    assert NARROW in whole
    each = []
    for setting in settings:
        number, tokens = setting.size
        tree = f"num_steps: [{number}], topk: [{topk}], num_draft_tokens: [{tokens}]"
        each.append(f"    - {{algorithm: EAGLE3, {tree}}}\n")
    text = whole.replace(NARROW, "".join(each)).replace("moonshotai/Kimi-K2.5", model)
    if today is not None:
        number, tokens = today.size
        command = TODAY.format(model=model, steps=number, topk=topk, tokens=tokens)
        text += f"production: {{command: {json.dumps(command)}}}\n"
    return parse_study(text, "small.yaml")


def lie(measurement):
    """Three times the speed, of a server that works otherwise."""
    return replace(
        measurement,
        output_tok_s=3 * measurement.output_tok_s,
        cycle=clock(verify=20.0, draft=1.0),
    )


def in_ll(configuration):
    return dict(configuration.env)["NCCL_PROTO"] == "LL"


def lying(configuration, measurement, intent):
    """A server of `LL` that is another one in every state that it was switched to."""
    plain = clocked(configuration, measurement, intent)
    switched = intent.settings and configuration.setting != largest(intent.settings)
    return lie(plain) if switched and in_ll(configuration) else plain


def all_true(report):
    """Whether each figure that counts is what the machine gives."""
    complete = [t for t in report.leaderboard.trials if t.state is TrialState.COMPLETE]
    return complete and all(
        trial.measurements[0].output_tok_s == pytest.approx(speed(trial.configuration))
        for trial in complete
    )


def killed_and_resumed(study, store, bend):
    """The end of a study whose tuner is killed by `bend`, and resumed."""
    runner = Switchable(study, bend)
    with pytest.raises(Killed):
        play(study, store, runner, hot_switch=True, planner="exhaustive")
    end_leftovers_of(store, store.study("s"))
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    return report


WIDE, DEEP = Setting(2, 6), Setting(3, 4)
"""Neither has room for the other."""


@pytest.mark.parametrize("planner", planner_names())
def test_where_nobody_measures_the_start_one_is_launched_by_itself_first(store, planner):
    study = trees(WIDE, DEEP, Setting(1, 3))
    runner = Switchable(study, lying)
    needed = assembly.build_problem(study, runner, hot_switch=True).needed().launches
    report = play(study, store, runner, hot_switch=True, planner=planner)
    assert report.study.stopped == "exhausted"
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert all_true(report)
    honest = Switchable(study, clocked)
    again = play(study, store, honest, hot_switch=True, planner=planner, name="honest")
    assert again.hot_switch.switching.gave_up is None
    assert len(honest.intents) == needed < 1 + 1 + 1 + 6


def test_killed_behind_the_start_what_is_left_is_held_against_something_else(store):
    study = trees(Setting(3, 8), WIDE, DEEP)
    seen = []

    def bend(configuration, measurement, intent):
        if intent.settings and in_ll(configuration):
            seen.append(configuration)
            if len(seen) == 2:
                raise Killed
        return lying(configuration, measurement, intent)

    report = killed_and_resumed(study, store, bend)
    assert all_true(report)


@pytest.mark.parametrize("points", ["[{concurrency: 1}]", "[{concurrency: 1}, {concurrency: 4}]"])
def test_where_the_start_is_disturbed_the_others_are_launched_by_themselves(small, store, points):
    study = small(steps="{from: 1, to: 4}", protos="[null, LL]", points=points)
    last = study.to_workload().points[-1]

    def bend(configuration, measurement, intent):
        bent = lying(configuration, measurement, intent)
        start = intent.settings and configuration.setting == largest(intent.settings)
        if start and in_ll(configuration) and measurement.point == last:
            return replace(bent, invalid=("unsteady: 12 %",))
        return bent

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    assert all_true(report)
    [failed] = [launch for launch in report.launches if launch.failure is not None]
    assert failed.failure.kind == "not_compared"
    assert "the setting of the start has no valid window" in failed.failure.message
    # Its three others have a launch each; what it was started at is its own verdict.
    assert [steps(i) for i in runner.intents if in_ll(i.configuration)][1:] == [
        [4, 1, 2, 3],
        *([],) * 3,
    ]
    assert report.hot_switch.switching.gave_up is None


def test_a_clock_that_stops_leaves_nothing_to_be_scored(small, store):
    study = small(steps="{from: 1, to: 4}", protos="[null, LL]")

    def bend(configuration, measurement, intent):
        bent = lying(configuration, measurement, intent)
        switched = intent.settings and configuration.setting != largest(intent.settings)
        return replace(bent, cycle=None) if switched and in_ll(configuration) else bent

    report = play(study, store, Switchable(study, bend), hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert all_true(report)
    assert "only one of the two settings has cycle times" in report.hot_switch.switching.gave_up


def test_above_a_spare_start_the_others_are_held_against_the_anchor(small, store):
    study = small(steps="[1, 2]", protos="[null]")

    def bend(configuration, measurement, intent):
        plain = clocked(configuration, measurement, intent)
        return lie(plain) if intent.settings and configuration.setting != Setting(3) else plain

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True)
    assert [steps(i) for i in runner.intents] == [[], [], [3, 1, 2, 4], [], []]
    assert all_true(report)
    [check] = report.hot_switch.switching.checks
    assert check.comparison.faithful, "the anchor agreed; what came after it did not"
    gave_up = report.hot_switch.switching.gave_up
    assert gave_up.count("differs from a separate launch") == 1


def test_an_anchor_that_is_always_disturbed_costs_two_launches_of_its_flags(store):
    study = trees(Setting(2, 8), Setting(3, 5), topk=4, today=Setting(2, 4), model=LLAMA)

    def bend(configuration, measurement, intent):
        plain = clocked(configuration, measurement, intent)
        if intent.settings and in_ll(configuration) and configuration.setting == Setting(2, 4):
            return replace(plain, invalid=("unsteady: 12 %",))
        return plain

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    kinds = [launch.failure.kind for launch in report.launches if launch.failure is not None]
    assert kinds == ["anchor_disturbed", "anchor_disturbed"]
    assert report.hot_switch.switching.gave_up is None, "elsewhere it was found faithful"
    assert all_true(report)


def test_baselines_among_themselves_share_nothing_and_are_nobodys_anchor():
    text = small_text(steps="{from: 1, to: 4}", protos="[LL, LL128]", launches=5)
    command = TODAY.format(model="moonshotai/Kimi-K2.5", steps=2, topk=1, tokens=3)
    command = command.removeprefix("NCCL_PROTO=LL ")
    study = parse_study(f"{text}production: {{command: {json.dumps(command)}}}\n", "small.yaml")
    runner = Switchable(study, clocked)
    needed = assembly.build_problem(study, runner, hot_switch=True).needed()
    assert [len(group) for group in needed.shared] == [4, 4]
    # None, the default, today's, none with each protocol, an anchor, and two for the chains.
    assert needed.launches == 8


@pytest.mark.parametrize("variable", ["", "NCCL_PROTO=LL "])
@pytest.mark.parametrize("number", [1, 2])
def test_the_dry_runs_count_is_what_a_sweep_makes_beside_todays_command(store, number, variable):
    """One step tells nothing of the draft forwards of others: it is nobody's anchor."""
    text = small_text(steps="{from: 1, to: 4}", protos="[LL, LL128]", launches=99)
    command = TODAY.format(model="moonshotai/Kimi-K2.5", steps=number, topk=1, tokens=number + 1)
    command = variable + command.removeprefix("NCCL_PROTO=LL ")
    study = parse_study(f"{text}production: {{command: {json.dumps(command)}}}\n", "small.yaml")
    runner = Switchable(study, clocked)
    needed = assembly.build_problem(study, runner, hot_switch=True).needed().launches
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    assert len(runner.intents) == needed


def test_killed_before_a_stalled_anchor_window_is_repeated_nothing_is_decided(small, store):
    study = small(steps="{from: 1, to: 4}", protos="[null]")
    seen = []

    def bend(configuration, measurement, intent):
        bare = replace(measurement, cycle=None)
        if intent.settings and configuration.setting == Setting(3):
            seen.append(configuration)
            if len(seen) == 1:
                slow = 0.6 * bare.output_tok_s
                return replace(bare, output_tok_s=slow, warnings=("stalled: 1 s",))
            if len(seen) == 2:
                raise Killed
        return bare

    report = killed_and_resumed(study, store, bend)
    assert report.hot_switch.switching.gave_up is None
    assert report.hot_switch.saved > 0
