"""Many settings in one launch: what is measured first, what is scored, and the way back."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from results.records import Failure, LaunchState, Machine, Purpose, TrialState
from results.store import Store
from runners.base import RunnerError
from runners.replay.runner import ReplayRunner
from search_spaces.configuration import Setting
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from tuner.analysis.contributions import contributions
from tuner.hot_switch.report import hot_switch_report
from tuner.hot_switch.switching import read_switching
from tuner.loop.progress import Silent
from tuner.planners.registry import planner_names
from tuner.reports.json_text import dump
from tuner.reports.text import render, render_trial
from tuner.studies import assembly
from tuner.studies.differences import study_differences
from tuner.studies.fork import inherit

from ..conftest import small_text
from ..replays import chains, play, point, table
from ..reports.test_report import SCHEMA
from .test_faithful import clock

pytestmark = pytest.mark.slow

REFUSED = Failure("switch_refused", "load", "configuration", "speculative_num_steps: refused")
OOM = Failure("cuda_oom", "cuda_graph", "configuration", "CUDA out of memory")


class Switchable(ReplayRunner):
    """A machine whose launches for many settings a test bends.

    Args:
        bend: Gets configuration, measurement and intent of each window; may raise instead.
    """

    def __init__(self, study, bend=lambda _c, m, _i: m, *, start=None, **options) -> None:
        super().__init__(table(study), study, can_switch=chains, **options)
        self._bend = bend
        self._refuse = start
        self.intents = []

    def machine(self):
        return Machine(gpus=("NVIDIA H200",))

    def start(self, intent, on_process, on_progress=None):
        self.intents.append(intent)
        if self._refuse is not None and (failure := self._refuse(intent)) is not None:
            raise RunnerError(failure)
        return super().start(intent, on_process, on_progress)

    def measured(self, configuration, point):
        return self._bend(configuration, super().measured(configuration, point), self.intents[-1])


def clocked(configuration, measurement, intent, *, switched_verify=5.8):
    """A clock that says what a faithful plugin does, or not."""
    verify = switched_verify if intent.settings else 5.8
    return replace(measurement, cycle=clock(verify=verify))


def steps(intent):
    return [s.num_steps for s in intent.settings]


@pytest.mark.parametrize("planner", planner_names())
def test_the_default_is_the_anchor_and_is_measured_first(small, store, planner):
    study = small(steps="{from: 1, to: 5}")
    runner = Switchable(study, clocked)
    report = play(study, store, runner, planner=planner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert len(report.leaderboard.trials) == 12
    hot = [i for i in runner.intents if i.settings]
    # Two without speculation, the default's own, the rest of its chains, the other protocol's.
    assert len(runner.intents) == 5
    assert len(hot) == 2
    assert steps(hot[0])[0] == 3
    assert sorted(steps(hot[0])) == sorted(steps(hot[1])) == [1, 2, 3, 4, 5]
    assert dict(hot[0].configuration.env)["NCCL_PROTO"] is None
    default = report.leaderboard.baselines["default"]
    assert len(default.launches) == 2
    known = store.measurements(report.study.id, default.number)
    assert [m.purpose for m in known] == [Purpose.BASELINE, Purpose.ANCHOR]
    first = report.launches[default.launches[-1]]
    assert first.trials[0] == default.number
    windows = [
        (m.measurement.started_at, m.purpose)
        for t in report.leaderboard.trials
        for m in store.measurements(report.study.id, t.number)
        if m.launch == first.id
    ]
    assert min(windows)[1] is Purpose.ANCHOR


def test_the_anchors_second_figures_are_never_the_trials_own(small, store):
    study = small()

    def bend(configuration, measurement, intent):
        shift = 1.05 if intent.settings and configuration.speculation.num_steps == 3 else 1.0
        return replace(measurement, output_tok_s=measurement.output_tok_s * shift)

    report = play(study, store, Switchable(study, bend), hot_switch=True)
    default = report.leaderboard.baselines["default"]
    assert default.measurements[0].output_tok_s == pytest.approx(84.0)
    assert default.judged_in == default.launches[0]


def test_an_anchor_that_would_be_the_largest_gets_a_spare_above_it(small, store):
    study = small(steps="[1, 2]", protos="[null]")
    runner = Switchable(study, clocked)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert [steps(i) for i in runner.intents] == [[], [], [3, 1, 2, 4]]
    assert len(report.leaderboard.trials) == 4  # 4 steps are no trial


def test_what_saves_no_launch_is_not_switched(small, store):
    study = small(steps="[2, 3]", protos="[null]")
    runner = Switchable(study, clocked)
    play(study, store, runner, hot_switch=True)
    assert [steps(i) for i in runner.intents] == [[], [], []]


def test_a_launch_for_one_point_checks_by_the_way_what_later_ones_need(small, store):
    study = small(steps="[2, 3]", protos='[null, "LL,LL128,Simple", LL128]')
    runner = Switchable(study, clocked)
    play(study, store, runner, hot_switch=True, planner="exhaustive")
    chained = [steps(i) for i in runner.intents if i.configuration.speculation.enabled]
    assert chained == [[], [3, 2, 4], [3, 2], [3, 2]]


def of_trees(intents):
    return [list(map(str, i.settings)) for i in intents if i.configuration.speculation.topk == 2]


@pytest.mark.parametrize("planner", planner_names())
def test_chains_and_trees_have_a_check_each(small, store, planner):
    study = small(steps="[1, 2, 3]", topk="[1, 2]", protos="[null]")
    runner = Switchable(study, clocked)
    report = play(study, store, runner, hot_switch=True, planner=planner)
    assert report.study.stopped == "exhausted"
    # None, the default's own, what is left of its chains, one tree, and the other two.
    assert len(runner.intents) == 5
    alone, shared = of_trees(runner.intents)
    assert alone == []
    assert sorted(shared) == ["2/4", "3", "3/8"]
    assert shared[0] != "3/8", "the anchor is switched to, and the server was started at that"
    checks = report.hot_switch.switching.checks
    assert {check.drafter for check in checks} == {("EAGLE3", 1), ("EAGLE3", 2)}
    assert all(check.comparison.faithful for check in checks)
    keys = [t.configuration.key for t in report.leaderboard.trials]
    assert len(keys) == len(set(keys)) == 1 + 3 + 3
    document = json.loads(dump(report.to_dict()))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    (found,) = [x for x in document["launches"] if len(set(x["steps"])) < len(x["steps"])]
    pairs = zip(found["steps"], found["draft_tokens"], strict=True)
    assert sorted(pairs) == [(2, 4), (3, 4), (3, 8)]
    assert sorted(check["topk"] for check in document["hot_switch"]["checks"]) == [1, 2]


def test_an_unfaithful_tree_costs_no_chain_its_figures(small, store):
    study = small(steps="[1, 2, 3]", topk="[1, 2]", protos="[null]")

    def bend(configuration, measurement, intent):
        slow = 8.0 if configuration.speculation.topk == 2 else 5.8
        return clocked(configuration, measurement, intent, switched_verify=slow)

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    assert {trial.state for trial in report.leaderboard.trials} == {TrialState.COMPLETE}
    by_id = {launch.id: launch for launch in report.launches}
    for trial in report.leaderboard.trials:
        settings = by_id[trial.judged_in].intent.settings
        assert not (settings and trial.configuration.speculation.topk == 2)
    assert any(by_id[t.judged_in].intent.settings for t in report.leaderboard.trials)
    assert "verify at batch 1" in report.hot_switch.switching.gave_up
    # The tree that was to be an anchor had its launch; the other two have theirs after it.
    assert of_trees(runner.intents) == [[], ["2/4", "3/8", "3"], [], []]


def test_llamas_default_is_the_anchor_of_trees_without_a_launch_more(store):
    text = small_text(steps="[3, 5]", topk="[1, 4]", protos="[null]").replace(
        "moonshotai/Kimi-K2.5", "meta-llama/Llama-3.1-8B-Instruct"
    )
    study = parse_study(text, "small.yaml")
    runner = Switchable(study, clocked)
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    default = report.leaderboard.baselines["default"]
    assert default.configuration.setting == Setting(5, 8)
    # It is the largest of them, so the server is started a step and a token above it.
    hot = [list(map(str, i.settings)) for i in runner.intents if i.settings]
    assert hot == [["5/8", "3", "3/8", "6/9"]]
    (check,) = report.hot_switch.switching.checks
    assert (check.anchor, check.drafter) == (default.number, ("EAGLE3", 4))
    # None, the default's own, two chains (nothing is saved by a pair), the switched one, and the
    # tree 5/4, in which no path of 5 steps fits.
    assert len(runner.intents) == 6


def test_a_server_whose_states_are_of_another_one_scores_none_of_them(small, store):
    """The anchor agreed, at other settings of the system than this server has."""
    study = small(steps="{from: 1, to: 4}", protos="[null, LL]")

    def bend(configuration, measurement, intent):
        slow = ("NCCL_PROTO", "LL") in configuration.env and configuration.setting != Setting(4)
        return clocked(configuration, measurement, intent, switched_verify=9 if slow else 5.8)

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert [steps(i) for i in runner.intents if i.settings] == [[3, 4, 1, 2], [4, 1, 2, 3]]
    assert "verify takes 8.82 ms, but 5.68 ms at 4 steps" in report.hot_switch.switching.gave_up
    by_id = {launch.id: launch for launch in report.launches}
    for trial in report.leaderboard.trials:
        verify = trial.measurements[0].cycle.batches[0].parts["verify"]
        assert verify.median_s == pytest.approx(5.8e-3), trial.number
        if ("NCCL_PROTO", "LL") in trial.configuration.env:
            # What the server was started at is its own state, and stays.
            switched = bool(by_id[trial.judged_in].intent.settings)
            assert switched == (trial.configuration.setting == Setting(4))


def test_todays_command_has_a_launch_of_its_own(store):
    command = (
        "NCCL_PROTO=LL python -m sglang.launch_server --model moonshotai/Kimi-K2.5 --tp 8 "
        "--max-running-requests 64 --speculative-algo EAGLE3 --speculative-draft-model-path "
        "lightseekorg/kimi-k2.5-eagle3 --speculative-num-steps 2 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 3"
    )
    text = small_text(steps="{from: 1, to: 4}", protos="[null, LL]")
    study = parse_study(f"{text}production: {{command: {json.dumps(command)}}}\n", "small.yaml")
    runner = Switchable(study, clocked)
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    assert report.leaderboard.baselines["production"].purpose is Purpose.BASELINE
    assert [steps(i) for i in runner.intents] == [[], [], [], [], [3, 4, 1, 2], [2, 4, 1, 3]]
    assert len(report.leaderboard.trials) == 10


@pytest.mark.parametrize("planner", planner_names())
def test_without_a_baseline_in_reach_a_trial_of_the_search_is_launched_alone(small, store, planner):
    # The default has no protocol, and the space always sets one.
    study = small(steps="{from: 1, to: 5}", protos="[LL, LL128]")
    runner = Switchable(study, clocked)
    report = play(study, store, runner, planner=planner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    hot = [i for i in runner.intents if i.settings]
    assert len(hot) == 2
    # none and default, none with each protocol, one chain alone, the rest, the other protocol.
    assert len(runner.intents) == 7
    alone = [
        t for t in report.leaderboard.trials if t.purpose is Purpose.SEARCH and len(t.launches) == 2
    ]
    assert [t.configuration.speculation.num_steps for t in alone] == [steps(hot[0])[0]]
    assert 2 <= steps(hot[0])[0] < 5


@pytest.mark.parametrize("planner", planner_names())
def test_unfaithful_nothing_is_scored_and_every_setting_gets_a_launch(small, store, planner):
    study = small(steps="{from: 1, to: 5}")
    scored = []

    def bend(configuration, measurement, intent):
        scored.append((configuration, bool(intent.settings)))
        return clocked(configuration, measurement, intent, switched_verify=8.0)

    runner = Switchable(study, bend)
    report = play(study, store, runner, planner=planner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert [c.speculation.num_steps for c, hot in scored if hot] == [3]
    assert len(scored) == 13
    [unfaithful] = [x for x in report.launches if x.state is LaunchState.FAILED]
    assert unfaithful.failure.kind == "unfaithful"
    assert "verify at batch 1 +37.9 %" in unfaithful.failure.message
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert all(t.judged_in != unfaithful.id for t in report.leaderboard.trials)
    assert report.launches_spent == 12
    switching = read_switching(store, report.study.id, report.leaderboard.trials, report.launches)
    assert "verify at batch 1" in switching.gave_up


@pytest.mark.parametrize(("launches", "takes_over"), [(9, True), (12, False), (4, False)])
def test_what_counted_on_switching_goes_on_by_tpe_where_the_budget_no_longer_reaches(
    small, store, monkeypatch, launches, takes_over
):
    """With 5 launches every point is measured; one for each of them takes 12."""
    study = small(steps="{from: 1, to: 5}", launches=launches)
    made = []
    real = assembly.make_planner
    monkeypatch.setattr(
        assembly,
        "make_planner",
        lambda name, *rest, **options: made.append(name) or real(name, *rest, **options),
    )

    def bend(configuration, measurement, intent):
        return clocked(configuration, measurement, intent, switched_verify=8.0)

    # Whoever asks for all of them with a budget of 4 gets it.
    planner = "auto" if launches > 4 else "exhaustive"
    report = play(study, store, Switchable(study, bend), planner=planner, hot_switch=True)
    assert report.study.planner == "exhaustive"
    assert report.hot_switch.switching.gave_up is not None
    assert made == ["exhaustive", "tpe"] if takes_over else made == ["exhaustive"]
    assert report.launches_spent == launches
    # What was told to the first planner the second one knows.
    keys = [t.configuration.key for t in report.leaderboard.trials]
    assert len(set(keys)) == len(keys)
    assert report.study.stopped == ("exhausted" if launches == 12 else "budget")


def test_an_anchor_that_was_disturbed_says_nothing_and_is_measured_again(small, store):
    study = small(steps="{from: 1, to: 4}", protos="[null]")
    seen = []

    def bend(configuration, measurement, intent):
        if intent.settings and configuration.speculation.num_steps == 3:
            seen.append(measurement)
            if len(seen) <= 3:  # all that a launch gives it
                return replace(measurement, invalid=("unsteady: 12 %",))
        return clocked(configuration, measurement, intent)

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert [steps(i) for i in runner.intents] == [[], [], [3, 4, 1, 2], [3, 4, 1, 2]]
    lost = report.launches[2]
    assert (lost.failure.kind, lost.is_lost) == ("anchor_disturbed", True)
    assert report.hot_switch.switching.gave_up is None
    assert [c.launch for c in report.hot_switch.switching.checks] == [3]
    assert report.launches_spent == 3


@pytest.mark.parametrize(("odd", "kinds"), [(1, []), (3, ["anchor_disturbed"])])
def test_an_anchor_slower_than_its_clock_explains_is_measured_again(small, store, odd, kinds):
    study = small(steps="{from: 1, to: 4}", protos="[null]")
    seen = []

    def bend(configuration, measurement, intent):
        clocked_one = clocked(configuration, measurement, intent)
        if intent.settings and configuration.speculation.num_steps == 3:
            seen.append(measurement)
            if len(seen) <= odd:
                return replace(clocked_one, output_tok_s=0.75 * measurement.output_tok_s)
        return clocked_one

    report = play(study, store, Switchable(study, bend), hot_switch=True)
    assert report.study.stopped == "exhausted"
    failures = [launch.failure for launch in report.launches]
    assert [failure.kind for failure in failures if failure is not None] == kinds
    assert report.hot_switch.switching.gave_up is None
    assert [check.comparison.faithful for check in report.hot_switch.switching.checks] == [True]
    assert len(seen) == odd + 1


def test_an_anchor_that_stays_disturbed_sends_the_study_back_and_does_not_end_it(small, store):
    study = small(steps="{from: 1, to: 4}", protos="[null]")

    def bend(configuration, measurement, intent):
        if intent.settings:
            return replace(measurement, invalid=("unsteady: 12 %",))
        return clocked(configuration, measurement, intent)

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert [steps(i) for i in runner.intents] == [[], [], [3, 4, 1, 2], [3, 4, 1, 2], [], [], []]
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert (
        "launches 2 and 3: the reference run was disturbed" in report.hot_switch.switching.gave_up
    )


def test_a_server_that_dies_at_its_anchor_sends_the_study_back(small, store):
    study = small(steps="{from: 1, to: 4}", protos="[null, LL]")

    def bend(configuration, measurement, intent):
        if intent.settings:
            raise RunnerError(Failure("server_died", "load", "configuration", "illegal address"))
        return clocked(configuration, measurement, intent)

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert sum(bool(i.settings) for i in runner.intents) == 1
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert (
        ", in its reference run: server_died: illegal address"
        in report.hot_switch.switching.gave_up
    )


def test_switched_servers_that_somebody_kills_send_the_study_back(small, store):
    """As the kernel does where the states take more of the host's memory than there is."""
    study = small(steps="{from: 1, to: 4}", protos="[null, LL, LL128]")

    def bend(configuration, measurement, intent):
        if intent.settings and configuration.setting == Setting(2):
            raise RunnerError(Failure("scheduler_killed", "load", "host", "killed by signal 9"))
        return clocked(configuration, measurement, intent)

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    killed = [launch.id for launch in report.launches if launch.failure is not None]
    assert len(killed) == sum(bool(i.settings) for i in runner.intents) == 2
    numbers = " and ".join(map(str, killed))
    said = f"the switched servers of launches {numbers} were killed"
    assert report.hot_switch.switching.gave_up == said


@pytest.mark.parametrize("said_by", ["window", "server"])
def test_a_setting_that_was_not_in_force_is_measured_alone(small, store, said_by):
    study = small(steps="{from: 1, to: 4}", protos="[null]")

    class Forgetful(Switchable):
        """Stays at the anchor's steps, and says so in one way or the other."""

        def start(self, *arguments):
            session = super().start(*arguments)
            apply = session.apply

            def applied(setting):
                resolved = apply(setting)
                if setting.num_steps != 2 or said_by != "server":
                    return resolved
                speculation = replace(resolved.configuration.speculation, num_steps=3)
                return replace(
                    resolved,
                    configuration=replace(resolved.configuration, speculation=speculation),
                )

            session.apply = applied
            return session

    def bend(configuration, measurement, intent):
        measurement = clocked(configuration, measurement, intent)
        if intent.settings and configuration.speculation.num_steps == 2 and said_by == "window":
            return replace(measurement, invalid=("setting_not_in_force: 3 steps are",))
        return measurement

    runner = Forgetful(study, bend)
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert [steps(i) for i in runner.intents] == [[], [], [3, 4, 1, 2], []]
    assert report.launches[2].failure.kind == "setting_not_in_force"
    assert "3" in report.hot_switch.switching.gave_up
    two = next(t for t in report.leaderboard.trials if t.configuration.speculation.num_steps == 2)
    assert two.judged_in == 3
    assert len(two.measurements) == 1


def test_an_anchor_that_was_not_in_force_is_found_before_its_windows(small, store):
    """Else who is killed behind them would find figures that agree."""
    study = small(steps="{from: 1, to: 4}", protos="[null]")

    class Ignores(Switchable):
        def start(self, *arguments):
            session = super().start(*arguments)
            if self.intents[-1].settings:
                asked = session.resolved.configuration
                runs = replace(asked, speculation=replace(asked.speculation, num_steps=4))
                resolved = replace(session.resolved, configuration=runs)
                session.apply = lambda _: resolved
            return session

    runner = Ignores(study, clocked)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert [steps(i) for i in runner.intents] == [[], [], [3, 4, 1, 2], [], [], []]
    default = report.leaderboard.baselines["default"].number
    assert {m.launch for m in store.measurements(report.study.id, default)} == {1}
    assert "asked 3, runs 4" in report.hot_switch.switching.gave_up


@pytest.mark.parametrize("kind", ["plugin_refused", "switch_refused"])
def test_a_plugin_that_refuses_sends_the_study_back_once(small, store, kind):
    study = small(steps="{from: 1, to: 4}")
    refused = replace(REFUSED, kind=kind, message="its version is 0.5.99")
    runner = Switchable(study, clocked, start=lambda i: refused if i.settings else None)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert sum(bool(i.settings) for i in runner.intents) == 1
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    switching = read_switching(store, report.study.id, report.leaderboard.trials, report.launches)
    assert "0.5.99" in switching.gave_up


@pytest.mark.parametrize("kind", ["plugin_refused", "hot_switch_memory"])
@pytest.mark.parametrize("planner", planner_names())
def test_one_group_that_cannot_be_switched_leaves_the_others_as_they_are(
    small, store, kind, planner
):
    study = small(steps="{from: 1, to: 4}", protos="[null, LL128, LL]", launches=99)
    refused = replace(REFUSED, kind=kind, message="--attn-dp-size is 8")

    def start(intent):
        other = dict(intent.configuration.env)["NCCL_PROTO"] == "LL128"
        return refused if intent.settings and other else None

    runner = Switchable(study, clocked, start=start)
    report = play(study, store, runner, hot_switch=True, planner=planner)
    assert report.study.stopped == "exhausted"
    assert report.hot_switch.switching.gave_up is None
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    hot = [dict(i.configuration.env)["NCCL_PROTO"] for i in runner.intents if i.settings]
    assert sorted(map(str, hot)) == ["LL", "LL128", "None"]
    # none thrice, the anchor, one group alone, and the three that were to be switched through.
    assert len(runner.intents) == 3 + 1 + 4 + 3


def test_settings_that_run_alone_and_not_together_send_the_study_back(small, store):
    study = small(steps="{from: 1, to: 4}", protos='[null, "LL,LL128,Simple", LL128, LL]')
    runner = Switchable(study, clocked, start=lambda i: OOM if i.settings else None)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert sum(bool(i.settings) for i in runner.intents) == 1
    switching = read_switching(store, report.study.id, report.leaderboard.trials, report.launches)
    assert "each setting runs when launched separately" in switching.gave_up


def test_a_setting_that_cannot_run_either_way_is_no_reason_to_stop_switching(small, store):
    study = small(steps="{from: 1, to: 4}", protos='[null, "LL,LL128,Simple"]')
    bad = point(study, 4, None)

    def start(intent):
        asked = {intent.configuration.with_setting(s) for s in intent.settings}
        return OOM if bad in asked or intent.configuration == bad else None

    runner = Switchable(study, clocked, start=start)
    report = play(study, store, runner, hot_switch=True, planner="exhaustive")
    assert report.study.stopped == "exhausted"
    states = {t.configuration: t.state for t in report.leaderboard.trials}
    assert states.pop(bad) is TrialState.INFEASIBLE
    assert set(states.values()) == {TrialState.COMPLETE}
    switching = read_switching(store, report.study.id, report.leaderboard.trials, report.launches)
    assert switching.gave_up is None
    # The other protocol has an anchor of its own, and is switched through.
    assert [len(i.settings) for i in runner.intents].count(0) < len(runner.intents) - 1


class Killed(BaseException):
    """`kill -9`, as far as a test can play it: nothing behind it runs."""


def killed_at(study, store, window):
    """A study whose tuner is killed in the n-th window of its first switched launch."""
    seen = []

    def bend(configuration, measurement, intent):
        if intent.settings:
            seen.append(configuration)
            if len(seen) == window:
                raise Killed
        return clocked(configuration, measurement, intent)

    runner = Switchable(study, bend)
    problem = assembly.build_problem(study, runner, hot_switch=True)
    options = {"seed": 0, "planner": "exhaustive", "hot_switch": True}
    new = assembly.describe_new(problem, runner, name="s", launches=None, hours=None, **options)
    stored = store.create_study(new)
    loop, _ = assembly.make_sweep(
        problem, stored, store, runner, Silent(), mirror=None, shielded=contextlib.nullcontext
    )
    with contextlib.suppress(Killed):
        loop.run()
    return stored


def end_leftovers_of(store, stored):
    """What `tuner resume` does first."""
    for launch in store.unfinished(stored.id).launches:
        store.finish_launch(stored.id, launch.id, LaunchState.LOST)


def test_killed_in_the_anchors_window_the_check_is_made_again(small, store):
    study = small(steps="{from: 1, to: 4}")
    stored = killed_at(study, store, 1)
    left = store.unfinished(stored.id)
    assert {t.configuration.speculation.num_steps for t in left.trials} == {1, 2, 4}
    runner = Switchable(study, clocked)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert steps(runner.intents[0]) == [3, 4, 1, 2]
    default = report.leaderboard.baselines["default"]
    assert default.state is TrialState.COMPLETE
    assert len(default.launches) == 3
    switching = read_switching(store, report.study.id, report.leaderboard.trials, report.launches)
    assert [c.launch for c in switching.checks] == [default.launches[-1]]


def test_killed_behind_it_what_was_measured_is_kept_and_the_check_holds(small, store):
    study = small(steps="{from: 1, to: 4}")
    stored = killed_at(study, store, 3)
    before = {t.number: t for t in store.trials(stored.id) if t.state is TrialState.COMPLETE}
    assert {t.configuration.speculation.num_steps for t in before.values()} == {None, 3, 4}
    runner = Switchable(study, clocked)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert steps(runner.intents[0]) == [2, 1]  # no anchor again
    for number, trial in before.items():
        assert report.leaderboard.trials[number].measurements == trial.measurements


def test_an_unfaithful_study_stays_so_when_it_is_resumed(small, store):
    study = small(steps="{from: 1, to: 4}")

    def bend(configuration, measurement, intent):
        if len(runner.intents) > 4:
            raise KeyboardInterrupt
        return clocked(configuration, measurement, intent, switched_verify=9.0)

    runner = Switchable(study, bend)
    report = play(study, store, runner, hot_switch=True)
    assert report.study.stopped == "interrupted"
    resumed = Switchable(study, clocked)
    report = play(study, store, resumed, hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert not any(i.settings for i in resumed.intents)


def forked(store, study, new, runner):
    """A study that goes on from the stored one, as `tuner resume --fork` makes it."""
    stored = store.study("s")
    problem = assembly.build_problem(new, runner, hot_switch=True)
    options = {"seed": 0, "planner": "exhaustive", "hot_switch": True}
    described = assembly.describe_new(
        problem, runner, name="t", launches=None, hours=None, **options
    )
    found = inherit(
        store.trials(stored.id),
        store.launches(stored.id),
        study=new,
        space=problem.space,
        baselines=problem.baselines,
        differences=study_differences(study, new, simulated=True),
        caller={},
    )
    store.fork(stored.id, described, found.trials)
    return play(new, store, runner, name="t", hot_switch=True)


@pytest.mark.parametrize("faithful", [True, False])
def test_a_fork_knows_what_was_found_of_its_servers(small, store, faithful):
    study = small(steps="{from: 1, to: 4}", protos="[null]")

    def bend(configuration, measurement, intent):
        return clocked(configuration, measurement, intent, switched_verify=5.8 if faithful else 9)

    play(study, store, Switchable(study, bend), hot_switch=True)
    new = small(steps="{from: 1, to: 4}", protos="[null, LL]", launches=25)
    runner = Switchable(new, clocked)
    report = forked(store, study, new, runner)
    assert report.study.stopped == "exhausted"
    assert report.hot_switch.switching.gave_up is None or not faithful
    chained = [steps(i) for i in runner.intents if i.configuration.speculation.enabled]
    assert chained == ([[4, 1, 2, 3]] if faithful else [[]] * 4)
    # What it took over was not spent by it, and saved nothing for it.
    assert report.hot_switch.saved == (3 if faithful else 0)


def test_an_anchors_figures_are_no_repeat_and_no_part_of_what_a_change_brought(small, store):
    study = small(steps="{from: 1, to: 4}")

    def bend(configuration, measurement, intent):
        shift = 1.1 if intent.settings and configuration.speculation.num_steps == 3 else 1.0
        return replace(measurement, output_tok_s=measurement.output_tok_s * shift)

    report = play(study, store, Switchable(study, bend), hot_switch=True, planner="exhaustive")
    windows = [
        window
        for trial in report.leaderboard.trials
        for window in store.measurements(report.study.id, trial.number)
    ]
    assert len(windows) == len(report.leaderboard.trials) + 1
    best = report.leaderboard.best
    found = contributions(
        report.leaderboard, best, fixed_flags={}, fixed_env={}, against="default", windows=windows
    )
    assert found.noise is None
    assert found.total == pytest.approx(best.measurements[0].output_tok_s / 84.0)


def test_the_report_counts_what_was_saved_and_names_the_check(small, store, capsys):
    study = small(steps="{from: 1, to: 5}")
    report = play(study, store, Switchable(study, clocked), hot_switch=True)
    told = report.to_dict()
    jsonschema.validate(json.loads(dump(told)), json.loads(SCHEMA.read_text()))
    assert told["hot_switch"]["launches_saved"] == 12 - 5
    [check] = told["hot_switch"]["checks"]
    assert (check["faithful"], check["clock"], check["algorithm"]) == (True, "plugin", "EAGLE3")
    assert check["anchor"] == told["baselines"]["default"]
    assert told["launches"][check["launch"]]["steps"][0] == 3
    default = told["trials"][check["anchor"]]
    assert (default["launches"], default["judged_in"]) == (
        [check["own_launch"], check["launch"]],
        check["own_launch"],
    )
    assert told["launches"][0]["steps"] == []
    render(report)
    out = capsys.readouterr().out
    assert "hot switch: 9 settings measured in 2 launches, 7 launches saved" in out
    assert "reference check passed in launch" in out


def test_a_launch_that_runs_and_a_trial_that_needed_no_server_saved_nothing(small, store):
    study = small(steps="{from: 1, to: 5}")
    report = play(study, store, Switchable(study, clocked), hot_switch=True)
    trials, launches = report.leaderboard.trials, report.launches
    last = max(launch.id for launch in launches if launch.intent.settings)
    inside = [t for t in trials if t.judged_in == last]

    def saved(*, state=LaunchState.COMPLETE, resolved=inside[0].resolved):
        now = [replace(x, state=state) if x.id == last else x for x in launches]
        aside = replace(inside[0], state=TrialState.INACTIVE, resolved=resolved)
        seen = [aside if t.number == aside.number else t for t in trials]
        return hot_switch_report(store, report.study, seen, now).saved

    assert inside[0].resolved is not None
    assert saved() == 12 - 5
    assert saved(resolved=None) == 12 - 5 - 1
    assert saved(state=LaunchState.RUNNING) == 12 - 5 - (len(inside) - 1)


def test_launches_that_came_to_nothing_are_told_beside_those_that_measured(small, store, capsys):
    study = small(steps="{from: 1, to: 4}")
    stored = killed_at(study, store, 1)
    before = store.launches_spent(stored.id)
    end_leftovers_of(store, stored)
    lost = hot_switch_report(store, stored, store.trials(stored.id), store.launches(stored.id))
    assert list(lost.lines()) == ["hot switch: nothing measured, launch 3 was lost"]
    assert store.launches_spent(stored.id) == before
    report = play(study, store, Switchable(study, clocked), hot_switch=True)
    [first, *_] = report.hot_switch.lines()
    assert first == (
        "hot switch: 7 settings measured in 2 launches, launch 3 was lost, 5 launches saved"
    )
    assert report.hot_switch.saved == 5


def test_a_launch_that_was_lost_behind_what_it_judged_measured_that(small, store, capsys):
    study = small(steps="{from: 1, to: 4}", protos="[null]")
    stored = killed_at(study, store, 3)
    before = store.launches_spent(stored.id)
    end_leftovers_of(store, stored)
    assert store.launches_spent(stored.id) == before, "what is spent stays spent, and only that"
    report = play(study, store, Switchable(study, clocked), hot_switch=True)
    [first, *_] = report.hot_switch.lines()
    assert first == ("hot switch: 3 settings measured in 2 launches, 1 launch saved")

    def told(number):
        render_trial(report, report.leaderboard.trials[number])
        out = capsys.readouterr().out.splitlines()
        return [line.split(", log")[0].strip() for line in out if line.startswith("  launch")]

    default = report.leaderboard.baselines["default"].number
    assert told(default) == [
        "launch 1: measured here",
        "launch 2: reference run after a switch (not scored), then lost",
    ]
    first, second, _ = (t.number for t in report.leaderboard.trials if t.purpose is Purpose.SEARCH)
    assert told(first) == ["launch 2: measured here, setting of the start, then lost"]
    assert told(second) == [
        "launch 2: no result here, lost",
        "launch 3: measured here, after a switch",
    ]


def test_a_study_without_it_says_so(small, store):
    study = small()
    report = play(study, store, Switchable(study, clocked), hot_switch=False)
    assert list(report.hot_switch.lines()) == ["hot switch: off (--no-hot-switch)"]


def test_a_study_that_gave_up_says_why_and_what_it_cost(small, store, capsys):
    study = small(steps="{from: 1, to: 5}")

    def bend(configuration, measurement, intent):
        return clocked(configuration, measurement, intent, switched_verify=8.0)

    report = play(study, store, Switchable(study, bend), hot_switch=True)
    told = json.loads(dump(report.to_dict()))
    jsonschema.validate(told, json.loads(SCHEMA.read_text()))
    assert told["hot_switch"]["launches_saved"] == -1
    assert "verify at batch 1" in told["hot_switch"]["gave_up"]
    assert not told["hot_switch"]["checks"][0]["faithful"]
    render(report)
    out = capsys.readouterr().out
    assert "hot switch off, every setting got its own launch" in out
    assert "1 launch more than without hot switching" in out


PROTOS = ["null", '"LL,LL128,Simple"', "LL128", "LL"]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    depths=st.sets(st.integers(1, 5), min_size=1, max_size=3),
    protos=st.sets(st.sampled_from(PROTOS), min_size=1, max_size=3),
    topk=st.sampled_from(["[1]", "[1, 2]", "[2, 4]", "[4]"]),
    target=st.sampled_from(["moonshotai/Kimi-K2.5", "meta-llama/Llama-3.1-8B-Instruct"]),
)
def test_a_dry_run_counts_the_launches_that_a_sweep_makes(depths, protos, topk, target):
    text = small_text(
        steps=str(sorted(depths)),
        protos=f"[{', '.join(p for p in PROTOS if p in protos)}]",
        topk=topk,
        launches=99,
    ).replace("moonshotai/Kimi-K2.5", target)
    study = parse_study(text, "small.yaml")
    assert len(Space(study))

    with Store.open("sqlite://") as store:
        runner = ReplayRunner(table(study), study, can_switch=chains)
        needed = assembly.build_problem(study, runner, hot_switch=True).needed()
        report = play(study, store, runner, planner="exhaustive", hot_switch=True)
        assert report.study.stopped == "exhausted"
        assert len(report.launches) == needed.launches <= needed.separate
        assert len(report.leaderboard.trials) == needed.separate
