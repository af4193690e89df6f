"""Which measured setting a switched server is checked by."""

from __future__ import annotations

import pytest

from results.records import Purpose, Trial, TrialState
from search_spaces import Space
from tuner.agenda import Agenda
from tuner.anchors import Anchors
from tuner.faithful import Comparison
from tuner.planners import LaunchPlan, PlannedTrial
from tuner.planners.launches import LaunchBuilder
from tuner.switching import Check, Switching

from .replays import chains, point


@pytest.fixture
def secured(small):
    """The plan for some steps, where others were measured in launches of their own."""

    def found(alone, planned, *, may_start=True):
        study = small(steps="{from: 1, to: 5}", protos="[LL]")
        measured = tuple(
            Trial(n, Purpose.SEARCH, TrialState.COMPLETE, point(study, steps, "LL"))
            for n, steps in enumerate(alone)
        )
        trials = tuple(PlannedTrial(point(study, n, "LL"), Purpose.SEARCH) for n in planned)
        anchors = Anchors(LaunchBuilder(Space(study), chains), lambda _: may_start)
        seen = {t.configuration.key for t in measured}
        return anchors.secured(LaunchPlan(trials), Switching(alone=measured), seen)

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
    assert steps(plan) == (3, [1, 2, 4])
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


def test_what_needs_no_launch_and_is_not_stored_is_in_none(small):
    study = small(steps="{from: 1, to: 4}", protos="[LL]")
    builder = LaunchBuilder(Space(study), chains)
    baselines = {"default": point(study, 3, "LL")}
    agenda = Agenda(baselines, None, builder, Anchors(builder, lambda _: True))
    known = Switching(checks=(Check(1, 0, 0, "EAGLE3", Comparison((), None)),))
    assert known.is_faithful("EAGLE3")
    assert steps(agenda.next([], [], known)) == (None, [3, 1, 2, 4])
    aside = {point(study, 2, "LL").key}
    assert steps(agenda.next([], [], known, aside=aside)) == (None, [3, 1, 4])
