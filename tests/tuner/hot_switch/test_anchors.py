"""Which measured setting a switched server is checked by."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from results.records import Purpose, Trial, TrialState
from runners.plugin.package import same_but_setting
from search_spaces.configuration import Drafter, Setting
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from tuner.hot_switch.anchors import Anchors
from tuner.hot_switch.faithful import Comparison
from tuner.hot_switch.switching import Check, Switching
from tuner.loop.next_launch import NextLaunch
from tuner.planners.base import LaunchPlan, PlannedTrial
from tuner.planners.enumerated import ExhaustivePlanner
from tuner.planners.launches import LaunchBuilder

from ..conftest import small_text
from ..replays import chains, point

CHAIN = Drafter("EAGLE3", 1)


@pytest.fixture
def secured(small):
    """The plan for some steps, where others were measured in launches of their own."""

    def found(alone, planned, *, may_start=True, failed=()):
        study = small(steps="{from: 1, to: 5}", protos="[LL]")
        measured = tuple(
            Trial(n, Purpose.SEARCH, TrialState.COMPLETE, point(study, steps, "LL"))
            for n, steps in enumerate(alone)
        )
        trials = tuple(PlannedTrial(point(study, n, "LL"), Purpose.SEARCH) for n in planned)
        anchors = Anchors(LaunchBuilder(Space(study), chains), lambda _: may_start)
        seen = {t.configuration.key for t in measured}
        cannot_run = tuple(point(study, steps, "LL") for steps in failed)
        known = Switching(separate=measured, cannot_run=cannot_run)
        return anchors.secured(LaunchPlan(trials), known, seen)

    return found


def steps(plan):
    anchor = plan.anchor and plan.anchor.configuration.speculation.num_steps
    return anchor, [t.configuration.speculation.num_steps for t in plan.trials]


def test_one_that_drafts_forwards_goes_before_one_that_does_not_though_it_costs_a_spare(secured):
    plan = secured([1, 5], [2, 3, 4])
    assert steps(plan) == (5, [2, 3, 4])
    assert plan.spare.num_steps == 6


def test_one_that_needs_no_spare_goes_before_one_that_does(secured):
    plan = secured([5, 3], [1, 2, 4])
    assert steps(plan) == (3, [4, 1, 2])
    assert plan.spare is None


@pytest.mark.parametrize("may_start", [True, False])
def test_one_step_does_not_tell_of_deeper_ones(secured, may_start):
    plan = secured([1], [2, 3, 4], may_start=may_start)
    assert steps(plan) == (None, [2])


@pytest.mark.parametrize(("planned", "first"), [([1, 2], 2), ([1, 2, 4], 2), ([3, 1, 4], 3)])
def test_without_one_what_tells_is_launched_alone(secured, planned, first):
    assert steps(secured([], planned)) == (None, [first])


def test_without_a_spare_to_start_nothing_is_checked(secured):
    assert steps(secured([5], [2, 3, 4], may_start=False)) == (None, [2])


@pytest.mark.parametrize("failed", [3, 2])
def test_what_failed_in_a_launch_of_its_own_is_prepared_for_no_anchor(secured, failed):
    # A server that is to be switched to 2 steps and 1 would be started at 3.
    assert secured([2], [1]).spare.num_steps == 3
    plan = secured([2], [1], failed=[failed])
    assert (plan.anchor, plan.spare, plan.settings) == (None, None, ())
    assert secured([2], [1], failed=[4]).spare.num_steps == 3, "a larger one says nothing of it"
    assert steps(secured([2], [1, 4], failed=[3])) == (2, [4, 1]), "no spare is needed"


def test_what_needs_no_launch_and_is_not_stored_is_in_none(small):
    study = small(steps="{from: 1, to: 4}", protos="[LL]")
    builder = LaunchBuilder(Space(study), chains)
    proposed = LaunchPlan((PlannedTrial(point(study, 1, "LL"), Purpose.SEARCH),))
    planner = SimpleNamespace(propose=lambda: proposed)
    same = SimpleNamespace(measured_first=lambda *_: point(study, 3, "LL"))
    next_launch = NextLaunch({}, planner, builder, Anchors(builder, lambda _: True), same)
    known = Switching(checks=(Check(1, 0, 0, CHAIN, Comparison((), None)),))
    assert known.is_faithful(CHAIN)
    assert steps(next_launch.next([], [], known)) == (None, [4, 3, 1, 2])
    unstored = {point(study, 2, "LL").key}
    assert steps(next_launch.next([], [], known, unstored=unstored)) == (None, [4, 3, 1])


def test_what_is_left_is_counted_once_and_with_what_anchors_take(small):
    study = small(steps="{from: 1, to: 4}", protos="[null, LL]")
    space = Space(study)
    builder = LaunchBuilder(space, chains)
    default = point(study, 3, None)
    baselines = {"none": point(study, None, None), "default": default}
    planner = ExhaustivePlanner(space, builder)
    next_launch = NextLaunch(baselines, planner, builder, Anchors(builder, lambda _: True))
    none = [1, 1]
    # The default by itself, its three others behind it as the anchor, and those with LL.
    assert sorted(next_launch.remaining_sizes([], [], Switching())) == sorted([*none, 1, 4, 4])
    alone = Trial(0, Purpose.BASELINE, TrialState.COMPLETE, default)
    begun = [
        Trial(n, Purpose.SEARCH, TrialState.RUNNING, point(study, steps, None))
        for n, steps in enumerate([1, 2, 4], start=1)
    ]
    # What a kill left is the planner's, too: it has not heard of them, nor of the baseline yet.
    for trials in ([alone], [alone, *begun]):
        sizes = next_launch.remaining_sizes(trials, [], Switching(separate=(alone,)))
        assert sorted(sizes) == sorted([*none, 4, 4])
    known = Switching(checks=(Check(1, 0, 0, CHAIN, Comparison((), None)),), separate=(alone,))
    assert sorted(next_launch.remaining_sizes([alone, *begun], [], known)) == sorted([*none, 3, 4])
    next_launch.disable_hot_switch()
    assert next_launch.remaining_sizes([alone, *begun], [], known) == [1] * 9
    unstored = {begun[0].configuration.key}
    assert next_launch.remaining_sizes([alone], [], known, unstored=unstored) == [1] * 8


def test_of_a_pair_one_is_the_anchor_and_the_other_has_nothing_to_share(small):
    study = small(steps="[2, 3]", protos="[LL]")
    space = Space(study)
    builder = LaunchBuilder(space, chains)
    next_launch = NextLaunch({}, ExhaustivePlanner(space, builder), builder, Anchors(builder, bool))
    assert next_launch.remaining_sizes([], [], Switching()) == [1, 1, 1]


@pytest.fixture
def secured_trees():
    """The same where trees `"steps/draft tokens"` of topk 2 are planned, and any measured."""
    text = small_text(steps="{from: 1, to: 4}", topk="[1, 2, 4]", protos="[LL]")
    space = Space(parse_study(text.replace("[4, 8]", "[3, 4, 6, 8]"), "trees.yaml"))

    def tree_of(topk, shape):
        wanted = Setting.read(shape)
        (found,) = (
            p for p in space if p.setting == wanted and p.speculation.drafter == ("EAGLE3", topk)
        )
        return found

    def found(alone, planned, *, checks=()):
        measured = tuple(
            Trial(n, Purpose.SEARCH, TrialState.COMPLETE, tree_of(topk, shape))
            for n, (topk, shape) in enumerate(alone)
        )
        trials = tuple(PlannedTrial(tree_of(2, shape), Purpose.SEARCH) for shape in planned)
        anchors = Anchors(LaunchBuilder(space, same_but_setting), lambda _: True)
        seen = {t.configuration.key for t in measured}
        known = Switching(
            checks=tuple(Check(1, 0, 0, one, Comparison((), None)) for one in checks),
            separate=measured,
        )
        return anchors.secured(LaunchPlan(trials), known, seen)

    return found


def shapes(plan):
    anchor = plan.anchor and plan.anchor.configuration
    return (
        anchor and f"{anchor.speculation.topk}: {anchor.setting}",
        [str(t.configuration.setting) for t in plan.trials],
    )


def test_a_tree_is_anchored_by_a_tree_of_its_topk(secured_trees):
    alone = [(1, "3"), (4, "3/6"), (2, "2/6")]
    assert shapes(secured_trees(alone, ["1/3", "3/4", "3/8"])) == ("2: 2/6", ["3/8", "1/3", "3"])


@pytest.mark.parametrize("alone", [[(1, "3")], [(4, "3/6")], [(2, "1/3")]])
def test_neither_a_chain_nor_another_topk_nor_one_step_is_a_trees_anchor(secured_trees, alone):
    assert shapes(secured_trees(alone, ["2/4", "3/4", "3/8"])) == (None, ["2/4"])


@pytest.mark.parametrize("checked", [Drafter("EAGLE3", 1), Drafter("EAGLE3", 4)])
def test_the_check_of_a_chain_or_another_topk_is_none_of_a_tree(secured_trees, checked):
    planned = ["2/4", "3/8"]
    assert shapes(secured_trees([], planned, checks=[checked])) == (None, ["2/4"])
    known = secured_trees([], planned, checks=[Drafter("EAGLE3", 2)])
    assert shapes(known) == (None, planned[::-1])


def test_an_anchor_with_the_most_tokens_is_switched_to_where_another_has_more_steps(secured_trees):
    plan = secured_trees([(2, "2/6")], ["2/4", "3/4"])
    assert shapes(plan) == ("2: 2/6", ["2/4", "3"])
    assert plan.spare is None, "the server is started at 3/6"


def test_an_anchor_that_is_the_largest_in_both_gets_a_spare_above_it(secured_trees):
    plan = secured_trees([(2, "3/8")], ["2/4", "2/6"])
    assert shapes(plan) == ("2: 3/8", ["2/4", "2/6"])
    assert plan.spare == Setting(4, 9)
    assert list(map(str, plan.settings)) == ["3/8", "2/4", "2/6", "4/9"]


def test_what_is_launched_alone_is_not_what_the_others_start_at(secured_trees):
    assert shapes(secured_trees([], ["3/8", "2/6", "3/4"])) == (None, ["2/6"])
