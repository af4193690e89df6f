"""How long a study takes yet, by what its launches took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from results.records import Launch, LaunchIntent, LaunchState, Purpose, Trial, TrialState
from search_spaces.configuration import Configuration, Setting, Speculation
from tuner.loop.sweep import pace_of


def chain(steps):
    return Configuration.of(Speculation("EAGLE3", steps, 1, steps + 1))


def launch(number, ready_s, seconds, trials, *, settings=()):
    intent = LaunchIntent(chain(1), tuple(map(Setting, settings)), "mark", "log")
    return Launch(
        number, LaunchState.COMPLETE, intent, ready_s=ready_s, seconds=seconds, trials=trials
    )


ALONE = launch(0, 100.0, 120.0, (0,))
SHARED = launch(1, 130.0, 210.0, (0, 1, 2, 3), settings=(1, 2, 3, 4))
TRIALS = [
    Trial(n, Purpose.SEARCH, TrialState.COMPLETE, chain(n + 1), judged_in=min(n, 1))
    for n in range(4)
]


def test_a_start_and_a_window_for_each_setting_the_anchor_among_them():
    pace = pace_of([ALONE, SHARED], TRIALS)
    assert (pace.start_s, pace.switched_start_s) == (100.0, 130.0)
    assert pace.setting_s == (20.0 + 80.0) / (1 + 4)
    assert pace.seconds([1, 4, 5]) == (100 + 20) + (130 + 80) + (130 + 100)


def test_before_a_launch_is_switched_its_start_is_taken_for_the_others():
    assert pace_of([ALONE], TRIALS[:1]).seconds([3]) == 100 + 3 * 20


@pytest.mark.parametrize(
    "change",
    [{"state": LaunchState.LOST}, {"imported_from": "s#0"}, {"ready_s": None}, {"seconds": None}],
)
def test_launches_without_an_end_of_their_own_say_nothing(change):
    assert pace_of([replace(ALONE, **change)], TRIALS[:1]) is None
    assert pace_of([ALONE, replace(SHARED, **change)], TRIALS) == pace_of([ALONE], TRIALS[:1])
