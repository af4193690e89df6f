"""The sweep loop on a virtual clock: every planner, budget and failure, without a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from results.records import Failure, LaunchState, Purpose, TrialState
from results.store import Store
from runners.base import RunnerError
from runners.replay import ReplayEntry, ReplayRow, table_of
from search_spaces import Space, baselines
from tuner.planners import PLANNERS
from tuner.replay import replay

if TYPE_CHECKING:
    from search_spaces.configuration import Configuration


def speed(configuration: Configuration) -> float:
    """A made-up machine with one best point: 2 steps with the tuned protocol."""
    speculation = configuration.speculation
    tuned = dict(configuration.env)["NCCL_PROTO"] is not None
    if not speculation.enabled:
        return 90.0
    return {1: 80.0, 2: 85.0, 3: 84.0}[speculation.num_steps] + (12.0 if tuned else 0.0)


def table(study, *, failures: dict[str, Failure] | None = None, launch_s: float = 100.0):
    points = {*Space(study).points, *baselines(study).values()}
    return table_of(
        (
            point,
            ReplayEntry(
                launch_s,
                {p.concurrency: (ReplayRow(speed(point)),) for p in study.workload.points},
                (failures or {}).get(point.key),
            ),
        )
        for point in points
    )


@pytest.fixture
def store():
    with Store.open("sqlite://") as opened:
        yield opened


def chains(a: Configuration, b: Configuration) -> bool:
    same = a.env == b.env and a.speculation.algorithm == b.speculation.algorithm
    return same and a.speculation.enabled


def point(study, steps: int | None, proto: str | None) -> Configuration:
    return next(
        p
        for p in Space(study).points
        if p.speculation.num_steps == steps and dict(p.env)["NCCL_PROTO"] == proto
    )


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("switch", [None, chains])
def test_every_planner_finds_the_best_and_repeats_nothing(small, store, planner, switch):
    study = small()
    report = replay(study, table(study), store, name="s", planner=planner, can_switch=switch)
    assert report.study.stopped == "exhausted"
    best = report.standing.best
    assert best.configuration == point(study, 2, "LL,LL128,Simple")
    assert report.standing.score(best) == pytest.approx(97 / 90)
    keys = [t.configuration.key for t in report.standing.trials]
    assert len(keys) == len(set(keys)) == 8
    assert len(report.launches) == (8 if switch is None else 4)


def test_baselines_come_first(small, store):
    report = replay(small(), table(small()), store, name="s", planner="random", seed=5)
    first, second = report.standing.trials[:2]
    assert (first.purpose, second.purpose) == (Purpose.BASELINE, Purpose.BASELINE)
    assert not first.configuration.speculation.enabled
    assert second.configuration.speculation.num_steps == 3


def test_equal_seeds_replay_alike_and_others_differ(small, store):
    study = small(steps="{from: 1, to: 3}")
    orders = [
        [
            t.configuration
            for t in replay(
                study, table(study), store, name=name, planner="random", seed=seed
            ).standing.trials
        ]
        for name, seed in (("a", 1), ("b", 1), ("c", 2), ("d", 3))
    ]
    assert orders[0] == orders[1]
    assert len({tuple(c.key for c in order) for order in orders}) > 1


def test_a_configuration_that_cannot_run_is_infeasible_and_the_search_goes_on(small, store):
    study = small()
    oom = Failure("cuda_oom", "cuda_graph", "configuration", "CUDA out of memory")
    bad = point(study, 2, "LL,LL128,Simple")
    report = replay(study, table(study, failures={bad.key: oom}), store, name="s", planner="tpe")
    trial = next(t for t in report.standing.trials if t.configuration == bad)
    assert trial.state is TrialState.INFEASIBLE
    assert trial.failure == oom
    assert report.standing.best.configuration == point(study, 3, "LL,LL128,Simple")
    assert report.launches_spent == 8
    assert [x.state for x in report.launches].count(LaunchState.INFEASIBLE) == 1


def test_a_launch_for_many_settings_that_fails_blames_none(small, store):
    # The start-up configuration of the switched launch cannot run; its siblings can.
    study = small()
    oom = Failure("cuda_oom", "cuda_graph", "configuration", "CUDA out of memory")
    bad = point(study, 1, "LL,LL128,Simple")
    report = replay(
        study, table(study, failures={bad.key: oom}), store, name="s", can_switch=chains
    )
    states = {t.configuration: t.state for t in report.standing.trials}
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

    monkeypatch.setattr("runners.replay._ReplaySession.apply", refuse)
    report = replay(study, table(study), store, name="s", can_switch=chains)
    assert {t.state for t in report.standing.trials} == {TrialState.COMPLETE}
    assert len(report.standing.trials) == 8
    # Two of none; per NCCL setting the first one together, then the other two alone.
    assert len(report.launches) == 2 + 2 * 3
    assert report.standing.best.configuration == point(study, 2, "LL,LL128,Simple")


def test_the_baseline_that_does_not_run_stops_the_study_once(small, store):
    study = small()
    none = baselines(study)["none"]
    broken = Failure("crash", "weights", "configuration", "no kernel image")
    report = replay(study, table(study, failures={none.key: broken}), store, name="s")
    assert report.study.stopped == "fault"
    assert "no kernel image" in report.study.stop_reason
    assert [t.state for t in report.standing.trials] == [TrialState.FAILED]
    assert report.launches_spent == 0


def test_a_fault_of_the_study_stops_it(small, store):
    study = small()
    default = baselines(study)["default"]
    wrong = Failure("draft_mismatch", "weights", "study", "size mismatch for lm_head.weight")
    report = replay(study, table(study, failures={default.key: wrong}), store, name="s")
    assert report.study.stopped == "fault"
    assert report.verdict.kind == "unconfirmed"
    assert report.standing.best.number == 0


def test_host_faults_are_retried_and_then_pause_the_study(small, store):
    study = small()
    bad = point(study, 2, None)
    taken = Failure("port_taken", "ready", "host", "port 30000 belongs to another process")
    report = replay(study, table(study, failures={bad.key: taken}), store, name="s")
    assert report.study.stopped == "fault"
    assert "tuner resume" in report.study.stop_reason
    trial = next(t for t in report.standing.trials if t.configuration == bad)
    assert trial.state is TrialState.RUNNING  # nobody is blamed; resume takes it up again
    assert len(trial.launches) == 3
    assert {x.state for x in report.launches if trial.number in x.trials} == {LaunchState.FAILED}


def test_budget_of_launches_and_of_hours(small, store):
    study = small()
    report = replay(study, table(study), store, name="s", launches=3)
    assert (report.study.stopped, report.launches_spent) == ("budget", 3)
    slow = replay(study, table(study, launch_s=3 * 3600.0), store, name="slow")
    assert slow.study.stopped == "budget"
    assert "hours" in slow.study.stop_reason
    assert len(slow.launches) == 2  # six hours, three at a time


def test_two_operating_points(small, store):
    study = small(points="[{concurrency: 1}, {concurrency: 8, weight: 3}]")
    report = replay(study, table(study), store, name="s")
    assert {len(t.measurements) for t in report.standing.trials} == {2}
    assert [m.point.concurrency for m in report.standing.best.measurements] == [1, 8]


def test_many_replays_share_one_store(small, store):
    study = small()
    known = table(study)
    winners = [
        replay(study, known, store, name=f"s{i}", seed=i, noise=0.02, planner="random").standing
        for i in range(40)
    ]
    right = sum(w.best.configuration == point(study, 2, "LL,LL128,Simple") for w in winners)
    assert 8 < right < 40  # 2 % of noise hides a lead of 1 %, sometimes
