"""The sweep loop on a virtual clock: every planner and budget, without a process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from results.records import Purpose
from runners.replay.runner import ReplayRunner
from search_spaces.space.space import Space
from tuner.loop.progress import Silent
from tuner.planners.launches import LaunchBuilder
from tuner.planners.registry import planner_names
from tuner.replay import replay

from .replays import chains, play, point, table

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("planner", planner_names())
@pytest.mark.parametrize("switch", [None, chains])
def test_every_planner_finds_the_best_and_repeats_nothing(small, store, planner, switch):
    study = small()
    report = replay(study, table(study), store, name="s", planner=planner, can_switch=switch)
    assert report.study.stopped == "exhausted"
    best = report.leaderboard.best
    assert best.configuration == point(study, 2, "LL,LL128,Simple")
    assert report.leaderboard.score(best) == pytest.approx(97 / 90)
    keys = [t.configuration.key for t in report.leaderboard.trials]
    assert len(keys) == len(set(keys)) == 8
    # Two without speculation, the default's own, and one for the chains of each protocol.
    assert len(report.launches) == (8 if switch is None else 5)


def test_baselines_come_first(small, store):
    report = replay(small(), table(small()), store, name="s", planner="random", seed=5)
    first, second = report.leaderboard.trials[:2]
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
            ).leaderboard.trials
        ]
        for name, seed in (("a", 1), ("b", 1), ("c", 2), ("d", 3))
    ]
    assert orders[0] == orders[1]
    assert len({tuple(c.key for c in order) for order in orders}) > 1


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
    assert {len(t.measurements) for t in report.leaderboard.trials} == {2}
    assert [m.point.concurrency for m in report.leaderboard.best.measurements] == [1, 8]


def test_many_replays_share_one_store(small, store):
    study = small()
    known = table(study)
    winners = [
        replay(study, known, store, name=f"s{i}", seed=i, noise=0.02, planner="random").leaderboard
        for i in range(40)
    ]
    right = sum(w.best.configuration == point(study, 2, "LL,LL128,Simple") for w in winners)
    assert 8 < right < 40  # 2 % of noise hides a lead of 1 %, sometimes


@pytest.mark.parametrize("planner", planner_names())
def test_what_sglang_refuses_is_no_baseline_of_the_report(small, store, planner):
    def heed(problem):
        refused = problem.baselines["default"]
        space = Space(problem.study, lambda _: True, lambda point: point == refused)
        launches = LaunchBuilder(space, lambda a, b: a == b, hot_switch=False)
        kept = {"none": problem.baselines["none"]}
        return replace(problem, space=space, launches=launches, baselines=kept)

    study = small()
    report = play(study, store, ReplayRunner(table(study), study), planner=planner, heed=heed)
    assert report.study.stopped == "exhausted"
    assert len(report.leaderboard.trials) == 7
    assert report.leaderboard.baselines.keys() == {"none"}
    assert report.leaderboard.score(report.leaderboard.best) == pytest.approx(97 / 90)


@pytest.mark.parametrize("planner", planner_names())
def test_baselines_need_not_be_points_of_the_space(small, store, planner):
    # Neither "not set" nor 3 steps is searched: both baselines stand outside.
    study = small(steps="[1, 2]", protos='["LL,LL128,Simple", LL]', launches=24)
    report = replay(study, table(study), store, name="s", planner=planner)
    assert report.study.stopped == "exhausted"
    assert len(report.leaderboard.trials) == 2 + 6
    assert report.leaderboard.reference.values == (90.0,)
    assert report.leaderboard.score(report.leaderboard.best) == pytest.approx(97 / 90)


def test_a_budget_that_just_reaches_every_point_ends_exhausted(small, store):
    study = small()
    report = replay(study, table(study), store, name="s", launches=8)
    assert (report.study.stopped, report.launches_spent) == ("exhausted", 8)
    one_less = replay(study, table(study), store, name="t", launches=7, planner="exhaustive")
    assert (one_less.study.stopped, one_less.launches_spent) == ("budget", 7)


@pytest.mark.parametrize("planner", planner_names())
@pytest.mark.parametrize("launches", [4, 99])
@pytest.mark.parametrize("hot_switch", [False, True])
def test_time_left_is_told_from_the_second_launch_on(
    small, store, monkeypatch, *, hot_switch, planner, launches
):
    told = []
    monkeypatch.setattr(
        Silent,
        "launching",
        lambda _self, launch, _plan, eta_s: told.append((launch.id, runner.now(), eta_s)),
    )
    study = small(steps="{from: 1, to: 5}", launches=launches, requests=400)
    runner = ReplayRunner(table(study), study, can_switch=chains)
    report = play(study, store, runner, planner=planner, hot_switch=hot_switch)
    assert report.study.stopped == ("exhausted" if launches == 99 else "budget")
    sizes = [len(x.intent.settings) for x in report.launches]
    assert (max(sizes) > 1) == hot_switch
    assert [launch for launch, _, eta_s in told if eta_s is None] == [0]
    end = runner.now()
    for _, now, eta_s in told[1:]:
        # Which launches a budget will go to is not known, nor how fast their settings are.
        assert eta_s == pytest.approx(end - now, rel=0.15 if launches == 99 else 0.35)
