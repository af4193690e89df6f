"""Every planner against the contract of planners."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.records import LaunchIntent, Purpose, TrialState
from runners.plugin.package import prepared_settings, same_but_setting, started_at
from search_spaces.configuration import Configuration, Speculation, largest
from search_spaces.rules.legality import violations
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study, parse_study
from tuner.planners.base import Observation, PlannedTrial
from tuner.planners.conformance import STUDY, PlannerConformance
from tuner.planners.launches import LaunchBuilder
from tuner.planners.registry import choose_planner, make_planner

from .. import replays

pytestmark = pytest.mark.slow


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


TREES = STUDY.replace("[4]}", "[3, 4, 6, 8, 12]}").replace("topk: [1, 2]", "topk: [1, 2, 4]")
TREE_SPACE = Space(parse_study(TREES, "trees"))


@given(chosen=st.lists(st.sampled_from(TREE_SPACE.points), unique=True, min_size=1))
def test_a_launch_is_of_one_drafter_and_starts_with_room_for_all_of_it(chosen):
    builder = LaunchBuilder(TREE_SPACE, lambda a, b: a == b or same_but_setting(a, b))
    plans = builder.group(PlannedTrial(point, Purpose.SEARCH) for point in chosen)
    assert sorted(t.configuration.key for plan in plans for t in plan.trials) == sorted(
        point.key for point in chosen
    )
    servers = set()
    for plan in plans:
        first = plan.trials[0].configuration
        rest = {(c.speculation.drafter, c.draft_tp, c.flags, c.env) for c in
                (t.configuration for t in plan.trials)}  # fmt: skip
        assert len(rest) == 1
        if not plan.settings:
            continue
        assert not rest & servers, "what could share a launch does"
        servers |= rest
        intent = LaunchIntent(first, plan.settings, "mark", "log")
        start, prepared = started_at(intent), prepared_settings(intent)
        assert violations(start, TREE_SPACE.study) == (), "it can be started"
        assert start.setting == prepared[-1] == largest(plan.settings)
        assert set(plan.settings) <= set(prepared)
        assert len(prepared) <= len(plan.settings) + 1
        # As the plugin holds it against the worker.
        topk = start.speculation.topk
        for setting in prepared:
            steps, tokens = setting.size
            assert all(a <= b for a, b in zip(setting.size, start.setting.size, strict=True))
            assert steps < tokens <= 1 + topk + (steps - 1) * topk**2
    needed = builder.needed(chosen)
    shared = {c.speculation.drafter for group in needed.shared for c in group}
    # A reference run for each drafter, and for each server whose start is not among the chosen.
    assert len(shared) <= needed.launches - len(plans) <= len(needed.shared)
    assert needed.separate == len(chosen)


@pytest.mark.parametrize("point", TREE_SPACE.points, ids=str)
def test_siblings_are_what_the_running_server_can_be_switched_to(point):
    builder = LaunchBuilder(TREE_SPACE, lambda a, b: a == b or same_but_setting(a, b))
    found = set(builder.siblings(point, ()))
    assert found == {p for p in TREE_SPACE if p == point or same_but_setting(p, point)}
