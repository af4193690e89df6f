"""Figures of different prompts are not compared, also not over a resume."""

from __future__ import annotations

import dataclasses

import pytest

from results.records import Measurement, Trial, TrialState
from runners.base import RunnerError
from runners.replay import runner as replay_runner
from search_spaces.configuration import Configuration
from search_spaces.workload import OperatingPoint
from tuner.loop.same_load import SameLoad
from tuner.replay import replay

from ..replays import table


class Stored:
    """As much of a study and its store as is asked for."""

    id, name = 1, "mine"

    def __init__(self, *measured):
        self._trials = tuple(
            Trial(number, "search", TrialState.COMPLETE, Configuration(), measurements=windows)
            for number, windows in enumerate(measured)
        )

    def trials(self, _study_id):
        return self._trials


def window(load, point):
    made = object.__new__(Measurement)
    object.__setattr__(made, "workload_fingerprint", load)
    object.__setattr__(made, "point", point)
    return made


ONE, EIGHT = OperatingPoint(1), OperatingPoint(8)


def test_the_first_window_of_a_point_is_what_others_are_compared_with():
    stored = Stored()
    same = SameLoad(stored, stored)
    same.check(window("a", ONE), 0)
    same.check(window("b", EIGHT), 0)
    same.check(window("a", ONE), 1)
    with pytest.raises(RunnerError, match="differ from those of trial 0") as caught:
        same.check(window("b", ONE), 2)
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("load_changed", "study")


def test_what_was_measured_before_a_resume_counts():
    stored = Stored((), (window("a", ONE),), (window("a", ONE), window("b", EIGHT)))
    SameLoad(stored, stored).check(window("b", EIGHT), 3)
    with pytest.raises(RunnerError, match="differ from those of trial 1"):
        SameLoad(stored, stored).check(window("c", ONE), 3)


def test_a_study_whose_prompts_change_stops_and_keeps_what_it_has(small, store, monkeypatch):
    measured, seen = replay_runner._measurement, []

    def other_prompts_from_the_third_on(*arguments):
        seen.append(measured(*arguments))
        load = "old" if len(seen) < 3 else "new"
        return dataclasses.replace(seen[-1], workload_fingerprint=load)

    monkeypatch.setattr(replay_runner, "_measurement", other_prompts_from_the_third_on)
    report = replay(small(), table(small()), store, name="s")
    assert report.study.stopped == "fault"
    assert "differ from those of trial 0" in report.study.stop_reason
    states = [trial.state for trial in report.leaderboard.trials]
    assert states == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAILED]
    assert report.leaderboard.trials[2].measurements == ()
    assert report.launches_spent == 2
