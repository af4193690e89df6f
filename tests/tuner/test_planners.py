"""Every planner against the contract of planners."""

from __future__ import annotations

import pytest

from results.records import TrialState
from search_spaces import Space, load_study, parse_study
from search_spaces.configuration import Configuration, Speculation
from tuner.planners import LaunchBuilder, Observation, choose_planner, make_planner
from tuner.planners.conformance import STUDY, PlannerConformance

from . import replays


class TestExhaustive(PlannerConformance):
    def make(self, space, launches, seed):
        return make_planner("exhaustive", space, launches, seed=seed)


class TestRandom(PlannerConformance):
    def make(self, space, launches, seed):
        return make_planner("random", space, launches, seed=seed)

    def test_seeds_differ(self):
        first = [self._new(seed=s)[1].propose().trials[0] for s in range(6)]
        assert len({t.configuration.key for t in first}) > 1


class TestTPE(PlannerConformance):
    def make(self, space, launches, seed):
        return make_planner("tpe", space, launches, seed=seed)


def test_an_unknown_planner_is_refused():
    space = Space(load_study("kimi-demo"))
    with pytest.raises(ValueError, match="exhaustive, random, tpe"):
        make_planner("clever", space, LaunchBuilder(space, lambda a, b: a == b), seed=0)


def test_the_choice_follows_the_budget():
    space = Space(load_study("kimi-demo"))

    def chains(a, b):
        return a == b or (a.env == b.env and a.speculation.topk == b.speculation.topk == 1)

    alone, switched = (
        LaunchBuilder(space, replays.chains, hot_switch=hot_switch) for hot_switch in (False, True)
    )
    assert choose_planner(space, alone, 24) == "exhaustive"
    assert choose_planner(space, alone, 23) == "tpe"
    assert choose_planner(space, switched, 9) == "exhaustive"
    assert choose_planner(space, switched, 8) == "tpe"


def test_a_large_space_is_not_compared_point_by_point():
    text = STUDY.replace("[null, LL128]", "[null, LL128, LL, Simple]").replace(
        "  env:",
        f"  flags: {{chunked-prefill-size: {list(range(1, 60))}}}\n  env:",
    )
    space = Space(parse_study(text, "large"))
    asked = 0

    def chains(a, b):
        nonlocal asked
        asked += 1
        chain = a.speculation.topk == b.speculation.topk == 1
        return a == b or (chain and (a.env, a.flags) == (b.env, b.flags))

    builder = LaunchBuilder(space, chains)
    settings = 59 * 4
    # Each has none, a launch for all its chains, and its trees; one chain has one of its own.
    trees = sum(p.speculation.topk == 2 for p in space.points)
    assert builder.needed(space.points).launches == 1 + 2 * settings + trees
    assert asked <= len(space)


def test_the_choice_counts_baselines_that_are_no_points():
    space = Space(load_study("kimi-demo"))
    alone = LaunchBuilder(space, lambda a, b: a == b)
    outside = Configuration.of(Speculation("EAGLE3", 9, 1, 10), draft_tp=8)
    assert choose_planner(space, alone, 24, [space.points[0]]) == "exhaustive"
    assert choose_planner(space, alone, 24, [outside]) == "tpe"
    assert choose_planner(space, alone, 25, [outside]) == "exhaustive"


def test_counting_stops_where_the_budget_ends():
    space = Space(load_study("kimi-demo"))
    alone = LaunchBuilder(space, lambda a, b: a == b)
    taken = []

    def points():
        for point in space:
            taken.append(point)
            yield point

    assert alone.needed(points(), at_most=5).launches == 6
    assert len(taken) == 7 < len(space)
    assert alone.needed(space.points, at_most=len(space)).launches == len(space)


def proposals(small, *, hot_switch, rising):
    """What TPE chooses behind the eight depths of one server, by seed."""
    study = small(steps="{from: 1, to: 8}", protos="[null, LL, LL128, Simple]")
    space = Space(study)
    found = []
    for seed in range(8):
        builder = LaunchBuilder(space, replays.chains, hot_switch=hot_switch)
        planner = make_planner("tpe", space, builder, seed=seed)
        for n in range(1, 9):
            score = 1 + n / 10 if rising else 2 - n / 10
            planner.observe(Observation(replays.point(study, n, None), TrialState.COMPLETE, score))
        found.append(planner.propose().trials[0].configuration)
    return found


@pytest.mark.parametrize("hot_switch", [True, False])
def test_settings_of_one_server_are_no_start_of_a_search(small, hot_switch):
    rising, falling = (proposals(small, hot_switch=hot_switch, rising=r) for r in (True, False))
    # A start is random, whatever the scores are.
    assert (rising == falling) is hot_switch
