"""The sweep loop on a virtual clock: every failure, without a process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from results.records import Failure, LaunchState, TrialState
from runners.base import RunnerError
from runners.replay.runner import ReplayRunner
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from tuner.planners.registry import planner_names
from tuner.replay import replay
from tuner.reports.text import render

from ..replays import Odd, chains, play, point, table

pytestmark = pytest.mark.slow


def test_a_configuration_that_cannot_run_is_infeasible_and_the_search_goes_on(small, store):
    study = small()
    oom = Failure("cuda_oom", "cuda_graph", "configuration", "CUDA out of memory")
    bad = point(study, 2, "LL,LL128,Simple")
    report = replay(study, table(study, failures={bad.key: oom}), store, name="s", planner="tpe")
    trial = next(t for t in report.leaderboard.trials if t.configuration == bad)
    assert trial.state is TrialState.INFEASIBLE
    assert trial.failure == oom
    assert report.leaderboard.best.configuration == point(study, 3, "LL,LL128,Simple")
    assert report.launches_spent == 8
    assert [x.state for x in report.launches].count(LaunchState.INFEASIBLE) == 1


def test_a_launch_for_many_settings_that_fails_blames_none(small, store):
    # The start-up configuration of the switched launch cannot run; its siblings can.
    study = small()
    oom = Failure("cuda_oom", "cuda_graph", "configuration", "CUDA out of memory")
    bad = point(study, 3, "LL,LL128,Simple")
    report = replay(
        study, table(study, failures={bad.key: oom}), store, name="s", can_switch=chains
    )
    states = {t.configuration: t.state for t in report.leaderboard.trials}
    assert states.pop(bad) is TrialState.INFEASIBLE
    assert set(states.values()) == {TrialState.COMPLETE}
    failed = [x for x in report.launches if x.state is LaunchState.FAILED]
    assert len(failed) == 1
    assert len(failed[0].trials) == 3
    # one failed together, then each alone
    assert report.launches_spent == len(report.launches) - 1


def test_a_server_that_refuses_to_be_switched_blames_no_configuration(small, store, monkeypatch):
    study = small()

    def refuse(self, setting):
        if setting == self.resolved.configuration.setting:
            return self.resolved
        raise RunnerError(Failure("switch_refused", "load", "configuration", "it said no"))

    monkeypatch.setattr("runners.replay.runner._ReplaySession.apply", refuse)
    report = replay(study, table(study), store, name="s", can_switch=chains)
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert len(report.leaderboard.trials) == 8
    # Eight of their own, and the one that refused; nothing is switched after it.
    assert len(report.launches) == 8 + 1
    assert report.leaderboard.best.configuration == point(study, 2, "LL,LL128,Simple")


def test_the_baseline_that_does_not_run_stops_the_study_once(small, store):
    study = small()
    none = baselines(study)["none"]
    broken = Failure("crash", "weights", "configuration", "no kernel image")
    report = replay(study, table(study, failures={none.key: broken}), store, name="s")
    assert report.study.stopped == "fault"
    assert "no kernel image" in report.study.stop_reason
    assert [t.state for t in report.leaderboard.trials] == [TrialState.FAILED]
    assert report.launches_spent == 0


def test_a_fault_of_the_study_stops_it(small, store):
    study = small()
    default = baselines(study)["default"]
    wrong = Failure("draft_mismatch", "weights", "study", "size mismatch for lm_head.weight")
    report = replay(study, table(study, failures={default.key: wrong}), store, name="s")
    assert report.study.stopped == "fault"
    assert report.verdict.kind == "unconfirmed"
    assert report.leaderboard.best.number == 0


def test_host_faults_are_retried_and_then_pause_the_study(small, store, capsys):
    study = small()
    bad = point(study, 2, None)
    taken = Failure("port_taken", "ready", "host", "port 30000 belongs to another process")
    report = replay(study, table(study, failures={bad.key: taken}), store, name="s")
    assert report.study.stopped == "fault"
    assert "tuner resume" in report.study.stop_reason
    trial = next(t for t in report.leaderboard.trials if t.configuration == bad)
    assert trial.state is TrialState.RUNNING  # nobody is blamed; resume takes it up again
    assert len(trial.launches) == 3
    assert {x.state for x in report.launches if trial.number in x.trials} == {LaunchState.FAILED}
    # Not at once: memory and ports take a while to come back.
    at_work = sum(launch.seconds for launch in report.launches)
    assert report.study.work_s == pytest.approx(at_work + 10 + 60)
    render(report)
    assert f"launch {trial.launches[0]} failed, not counted: port" in capsys.readouterr().out


OOM = Failure("cuda_oom", "load", "configuration", "CUDA out of memory")


def test_a_baseline_that_dies_at_its_second_point_is_no_reference(small, store):
    study = small(points="[{concurrency: 1}, {concurrency: 8}]")
    default = baselines(study)["default"]

    def bend(configuration, measurement):
        if configuration == default and measurement.point.concurrency == 8:
            raise RunnerError(OOM)
        return measurement

    report = play(study, store, Odd(study, bend))
    assert report.study.stopped == "exhausted"
    broken = report.leaderboard.baselines["default"]
    assert broken.state is TrialState.INFEASIBLE
    assert [m.point.concurrency for m in broken.measurements] == [1]
    assert report.leaderboard.gain_over("none", broken) is None  # as `export --trial` asks
    assert report.leaderboard.score(report.leaderboard.best) == pytest.approx(97 / 90)


def unbelieved(study, *names):
    """A study's servers, of which these baselines are not believed."""
    lost = [baselines(study)[name] for name in names]

    def bend(configuration, measurement):
        return replace(measurement, invalid=("garbage",)) if configuration in lost else measurement

    return Odd(study, bend)


def test_a_study_stops_where_no_baseline_is_believed(small, store):
    study = small()
    for _ in range(2):  # and `resume` says the same
        report = play(study, store, unbelieved(study, "none", "default"))
        assert report.study.stopped == "fault"
        for number, name in enumerate(("none", "default")):
            missing = f"baseline '{name}' is missing: trial {number} is invalid"
            assert missing in report.study.stop_reason
        assert "garbage" in report.study.stop_reason
        assert "tuner sweep --study FILE --name NAME" in report.study.stop_reason
        assert [t.state for t in report.leaderboard.trials] == [TrialState.INVALID] * 2
        assert report.leaderboard.best is None


@pytest.mark.parametrize(("lost", "left"), [("none", "default"), ("default", "none")])
def test_a_study_goes_on_against_the_other_baseline(small, store, lost, left):
    study = small()
    report = play(study, store, unbelieved(study, lost))
    assert report.study.stopped == "exhausted"
    best = report.leaderboard.best
    assert report.leaderboard.gain_over(lost, best) is None
    assert report.leaderboard.score(best) == report.leaderboard.gain_over(left, best) > 1
    reason = report.verdict.reason
    assert (
        f"baseline '{lost}' is missing: trial {report.leaderboard.baselines[lost].number}" in reason
    )
    assert "garbage" in reason
    assert f"'{left}' is missing" not in reason


@pytest.mark.parametrize("planner", planner_names())
def test_a_baseline_whose_knob_is_ignored_is_left_out_of_the_comparison(small, store, planner):
    study = small()
    default = baselines(study)["default"]

    class Rewrites(ReplayRunner):
        def start(self, intent, on_process, on_progress=None):
            session = super().start(intent, on_process, on_progress)
            if intent.configuration == default:
                other = point(study, 2, None)
                session.resolved = replace(session.resolved, configuration=other)
            return session

    report = play(study, store, Rewrites(table(study), study), planner=planner)
    assert report.study.stopped == "exhausted"
    assert report.leaderboard.baselines["default"].state is TrialState.INACTIVE
    keys = [t.configuration.key for t in report.leaderboard.trials]
    assert len(keys) == len(set(keys)) == 8
    assert report.leaderboard.score(report.leaderboard.best) == pytest.approx(97 / 90)


@pytest.mark.parametrize("planner", planner_names())
@pytest.mark.parametrize("steps", [2, 3])
def test_what_a_fault_of_the_study_stopped_is_measured_once_it_is_mended(
    small, store, planner, steps
):
    # 3 steps are the default baseline's, whose launch takes the others along.
    study = small()
    missing = Failure("not_started", "arguments", "study", "no such interpreter")
    broken = table(study, failures={point(study, steps, None).key: missing})
    report = play(study, store, ReplayRunner(broken, study, can_switch=chains), planner=planner)
    if steps == 3:
        assert report.study.stopped == "fault"
    mended = ReplayRunner(table(study), study, can_switch=chains)
    report = play(study, store, mended, planner=planner)
    assert report.study.stopped == "exhausted"
    complete = {
        t.configuration for t in report.leaderboard.trials if t.state is TrialState.COMPLETE
    }
    assert complete == set(Space(study).points)


def test_a_crash_in_a_launch_for_many_settings_is_judged_by_a_launch_of_its_own(
    small, store, capsys
):
    # 2 steps die only in a server that is prepared for all of them.
    study = small()
    best = point(study, 2, "LL,LL128,Simple")
    deaths = []

    def bend(configuration, measurement):
        if configuration == best and not deaths:
            deaths.append(configuration)
            raise RunnerError(OOM)
        return measurement

    report = play(study, store, Odd(study, bend, can_switch=chains), hot_switch=True)
    assert report.study.stopped == "exhausted"
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert report.leaderboard.best.configuration == best
    shared, *own = [report.launches[n] for n in report.leaderboard.best.launches]
    assert (shared.state, len(shared.trials)) == (LaunchState.FAILED, 3)
    assert [len(launch.trials) for launch in own] == [1]
    # It judged 1 step before the crash, so it is spent; and is said to be.
    assert report.launches_spent == len(report.launches)
    render(report)
    assert f"launch {shared.id} failed: CUDA out of memory" in capsys.readouterr().out


def test_a_server_that_did_not_start_and_cannot_be_stopped_stops_the_study(small, store):
    study = small()
    left = Failure("process_left", "stop", "host", "processes 4711 live on")
    bad = point(study, 2, None)
    report = replay(study, table(study, failures={bad.key: left}), store, name="s")
    assert report.study.stopped == "fault"
    assert "4711" in report.study.stop_reason
    trial = next(t for t in report.leaderboard.trials if t.configuration == bad)
    assert len(trial.launches) == 1


def test_a_killed_server_is_tried_again_and_then_its_configurations_own_fault(small, store):
    study = small()
    bad = point(study, 2, "LL,LL128,Simple")
    killed = Failure("scheduler_killed", "load", "host", "crashed with exit code -9")
    report = replay(study, table(study, failures={bad.key: killed}), store, name="s")
    assert report.study.stopped == "exhausted"
    trial = next(t for t in report.leaderboard.trials if t.configuration == bad)
    assert (trial.state, trial.failure.kind) == (TrialState.INFEASIBLE, "unstable")
    assert len(trial.launches) == 2
    assert report.launches_spent == 8  # the first kill may have been anybody's


def test_a_study_that_reached_its_target_leaves_nothing_running(small, store):
    # The shared launch of the last three settings fails, and the budget ends among the retries.
    study = small()
    oom = Failure("cuda_oom", "cuda_graph", "configuration", "CUDA out of memory")
    bad = point(study, 3, "LL,LL128,Simple")
    report = replay(
        study, table(study, failures={bad.key: oom}), store, name="s", can_switch=chains, launches=4
    )
    assert report.study.stopped == "budget"
    states = [t.state for t in report.leaderboard.trials]
    assert TrialState.RUNNING not in states
    failed = [t for t in report.leaderboard.trials if t.state is TrialState.FAILED]
    assert failed
    assert {t.failure.kind for t in failed} == {"not_measured"}


def test_a_disturbed_window_is_measured_once_more_in_the_same_launch(small, store):
    study = small(steps="[1]", protos="[null]")
    seen = []

    def bend(configuration, measurement):
        seen.append(configuration)
        disturbed = seen.count(configuration) == 1
        return replace(measurement, invalid=("unsteady: x", "silent: y") if disturbed else ())

    report = play(study, store, Odd(study, bend))
    assert {t.state for t in report.leaderboard.trials} == {TrialState.COMPLETE}
    assert all(len(t.measurements) == 1 for t in report.leaderboard.trials)
    assert report.launches_spent == len(report.leaderboard.trials) == 3
    stored = store.study("s").id
    assert [len(store.measurements(stored, t.number)) for t in report.leaderboard.trials] == [2] * 3


@pytest.mark.parametrize(
    ("windows", "judged_by", "state"),
    [
        (("stalled", "fine"), "fine", TrialState.COMPLETE),
        (("stalled", "stalled"), "stalled", TrialState.COMPLETE),
        (("stalled", "unsteady", "fine"), "fine", TrialState.COMPLETE),
        (("unsteady", "stalled"), "stalled", TrialState.COMPLETE),
        (("stalled", "unsteady", "unsteady"), "unsteady", TrialState.INVALID),
    ],
)
def test_a_stream_that_stood_still_is_looked_at_once_more(small, store, windows, judged_by, state):
    """Seen on an H200: a kernel compiled in the window took a fifth of it."""
    study = small(steps="[1]", protos="[null]")
    seen = []

    def bend(configuration, measurement):
        seen.append(configuration)
        kind = windows[seen.count(configuration) - 1]
        invalid = (f"{kind}: x",) if kind == "unsteady" else ()
        warnings = (f"{kind}: x",) if kind == "stalled" else ()
        speed = {"stalled": 80.0, "unsteady": 70.0, "fine": 100.0}[kind]
        return replace(measurement, output_tok_s=speed, invalid=invalid, warnings=warnings)

    play(study, store, Odd(study, bend))
    first = store.trials(store.study("s").id)[0]
    assert seen.count(first.configuration) == len(windows)
    assert first.state is state
    [used] = first.measurements
    assert used.output_tok_s == {"stalled": 80.0, "unsteady": 70.0, "fine": 100.0}[judged_by]


@pytest.mark.parametrize("invalid", ["unsteady: x", "cached_tokens: 8"])
def test_what_is_not_believed_again_or_for_another_reason_is_invalid(small, store, invalid):
    study = small(steps="[1]", protos="[null]")
    windows = []

    def bend(configuration, measurement):
        windows.append(configuration)
        bad = configuration.speculation.enabled
        return replace(measurement, invalid=(invalid,)) if bad else measurement

    report = play(study, store, Odd(study, bend))
    states = {t.configuration.speculation.enabled: t.state for t in report.leaderboard.trials}
    assert states == {False: TrialState.COMPLETE, True: TrialState.INVALID}
    each = 3 if invalid.startswith("unsteady") else 1
    assert len(windows) == 1 + 2 * each  # without speculation, the default's steps, and 1 step
