"""Scores, standings and judgements."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.records import Failure, Measurement, Purpose, Trial, TrialState
from search_spaces.configuration import Configuration, Speculation
from search_spaces.metrics import Metric
from search_spaces.workload import OperatingPoint
from tuner.formatting import describe_gain, describe_speeds
from tuner.verdict.scores import Leaderboard, Reference, beside_baselines, judge
from tuner.verdict.verdict import verdict

NONE = Configuration.of()
DEFAULT = Configuration.of(Speculation("EAGLE3", 3, 1, 4))


def measurement(tok_s: float, *, concurrency: int = 1, weight: float = 1.0, **kw) -> Measurement:
    values = {
        "point": OperatingPoint(concurrency, weight),
        "started_at": 0.0,
        "window_s": 1.0,
        "requests": 1,
        "failed_requests": 0,
        "output_tokens": int(tok_s),
        "output_tok_s": tok_s,
        "accept_length": None,
        "ttft_p50_ms": 50.0,
        "ttft_p95_ms": 70.0,
        "tpot_p50_ms": 10.0,
        "tpot_p95_ms": 11.0,
        "e2e_p50_ms": 1000.0,
        "e2e_p95_ms": 1100.0,
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "histogram": (),
        "workload_fingerprint": "x",
        "simulated": True,
    }
    return Measurement(**{**values, **kw})


def trial(number: int, configuration: Configuration, *speeds: float, state=TrialState.COMPLETE):
    points = tuple(measurement(s, concurrency=c) for c, s in zip((1, 8, 64), speeds, strict=False))
    return Trial(number, Purpose.SEARCH, state, configuration, measurements=points)


BASELINES = {"none": NONE, "default": DEFAULT}


def test_score_is_the_gain_over_the_best_baseline():
    other = Configuration.of(Speculation("EAGLE3", 2, 1, 3))
    leaderboard = Leaderboard.of(
        [trial(0, NONE, 90.0), trial(1, DEFAULT, 72.0), trial(2, other, 99.0)], BASELINES
    )
    assert leaderboard.score(leaderboard.trials[0]) == pytest.approx(1.0)
    assert leaderboard.score(leaderboard.trials[1]) == pytest.approx(0.8)
    assert leaderboard.score(leaderboard.trials[2]) == pytest.approx(1.1)
    assert leaderboard.best is leaderboard.trials[2]
    assert leaderboard.gain_over("default", leaderboard.trials[2]) == pytest.approx(99 / 72)


def test_several_points_take_the_best_baseline_at_each():
    other = Configuration.of(Speculation("EAGLE3", 2, 1, 3))
    leaderboard = Leaderboard.of(
        [trial(0, NONE, 100.0, 400.0), trial(1, DEFAULT, 80.0, 500.0), trial(2, other, 110, 450)],
        BASELINES,
    )
    assert leaderboard.reference == Reference((100.0, 500.0))
    assert leaderboard.score(leaderboard.trials[2]) == pytest.approx(math.sqrt(1.1 * 0.9))


def test_no_score_before_every_baseline_is_judged():
    leaderboard = Leaderboard.of([trial(0, NONE, 90.0)], BASELINES)
    assert leaderboard.score(leaderboard.trials[0]) is None
    assert leaderboard.best is leaderboard.trials[0]
    assert leaderboard.baselines["default"] is None


def test_an_infeasible_default_baseline_leaves_the_other_as_reference():
    crashed = Trial(1, Purpose.BASELINE, TrialState.INFEASIBLE, DEFAULT)
    leaderboard = Leaderboard.of([trial(0, NONE, 90.0), crashed], BASELINES)
    assert leaderboard.reference == Reference((90.0,))
    assert leaderboard.gain_over("default", leaderboard.trials[0]) is None


def test_an_unbelieved_measurement_is_no_reference_and_never_best():
    wrong = trial(1, DEFAULT, 900.0, state=TrialState.INVALID)
    leaderboard = Leaderboard.of([trial(0, NONE, 90.0), wrong], BASELINES)
    assert leaderboard.reference == Reference((90.0,))
    assert leaderboard.best is leaderboard.trials[0]


GARBAGE = ("degenerate_output: 8 of 8 answers are one token over and over",)


def answering(number: int, configuration: Configuration, *warnings: tuple[str, ...]) -> Trial:
    """A complete trial, with warnings at each of its points."""
    points = tuple(
        measurement(100.0, concurrency=concurrency, warnings=found)
        for concurrency, found in zip((1, 8), warnings, strict=False)
    )
    return Trial(number, Purpose.SEARCH, TrialState.COMPLETE, configuration, measurements=points)


def test_degenerate_answers_beside_a_clean_baseline_are_invalid():
    clean, garbage = answering(0, NONE, (), GARBAGE), answering(2, DEFAULT, GARBAGE, GARBAGE)
    found = beside_baselines(garbage, [clean, answering(1, NONE, GARBAGE, GARBAGE)])
    assert found.state is TrialState.INVALID
    assert found.failure is not None
    assert found.failure.kind == "invalid_measurement"
    assert "at concurrency 1: degenerate_output" in found.failure.message
    assert "baseline trial 0" in found.failure.message
    assert "concurrency 8" not in found.failure.message
    assert found.measurements == garbage.measurements


def test_degenerate_answers_without_a_clean_baseline_stay_a_warning():
    garbage = answering(2, DEFAULT, GARBAGE)
    unbelieved = replace(answering(0, NONE, ()), state=TrialState.INVALID)
    for baselines in ([], [answering(0, NONE, GARBAGE)], [unbelieved], [garbage]):
        assert beside_baselines(garbage, baselines) is garbage
    other = replace(answering(2, DEFAULT, ("queued: 9 in flight",)))
    assert beside_baselines(other, [answering(0, NONE, ())]) is other


def test_a_baseline_is_judged_against_a_later_one():
    trials = [answering(0, NONE, GARBAGE), answering(1, DEFAULT, ())]
    leaderboard = Leaderboard.of(trials, BASELINES)
    assert [t.state for t in leaderboard.trials] == [TrialState.INVALID, TrialState.COMPLETE]
    assert leaderboard.baselines["none"].state is TrialState.INVALID
    assert leaderboard.best is leaderboard.trials[1]
    assert "baseline 'none' is missing" in verdict(leaderboard).reason
    kept = Leaderboard.of(trials, BASELINES, compare_answers=False)
    assert kept.trials == tuple(trials)


def test_a_clean_baseline_judged_later_invalidates_a_degenerate_trial():
    other = Configuration.of(Speculation("EAGLE3", 2, 1, 3))
    trials = [answering(0, NONE, GARBAGE), answering(1, other, GARBAGE)]
    assert Leaderboard.of(trials, BASELINES).trials == tuple(trials)
    leaderboard = Leaderboard.of([*trials, answering(2, DEFAULT, ())], BASELINES)
    assert [t.state for t in leaderboard.trials] == [
        TrialState.INVALID, TrialState.INVALID, TrialState.COMPLETE,
    ]  # fmt: skip
    assert leaderboard.score(leaderboard.trials[1]) is None
    assert leaderboard.best is leaderboard.trials[2]
    assert Leaderboard.of(leaderboard.trials, BASELINES) == leaderboard


@given(
    speeds=st.lists(st.floats(1.0, 1e5), min_size=1, max_size=4),
    factor=st.floats(0.1, 10.0),
    weights=st.lists(st.floats(0.1, 5.0), min_size=4, max_size=4),
)
def test_scaling_every_point_scales_the_gain(speeds, factor, weights):
    reference = Reference(tuple(speeds))
    scaled = [
        measurement(s * factor, concurrency=i + 1, weight=w)
        for i, (s, w) in enumerate(zip(speeds, weights, strict=False))
    ]
    assert reference.gain(scaled) == pytest.approx(factor)


GOODPUT = Metric("goodput_request_s")
LATENCY = Metric("e2e_p95_ms", larger_is_better=False)


def measured(number: int, configuration: Configuration, **figures) -> Trial:
    points = (measurement(100.0, **figures),)
    return Trial(number, Purpose.SEARCH, TrialState.COMPLETE, configuration, measurements=points)


def test_goodput_ranks_where_the_objective_says_so():
    # Faster by tok/s, and worse by what the study is about.
    trials = [
        measured(0, NONE, goodput_request_s=2.0, output_tok_s=100.0),
        measured(1, DEFAULT, goodput_request_s=1.0, output_tok_s=900.0),
    ]
    leaderboard = Leaderboard.of(trials, BASELINES, GOODPUT)
    assert leaderboard.best is trials[0]
    assert leaderboard.score(trials[1]) == pytest.approx(0.5)
    assert leaderboard.gain_over("default", trials[0]) == pytest.approx(2.0)


def test_a_latency_is_better_when_it_is_shorter():
    trials = [measured(0, NONE, e2e_p95_ms=800.0), measured(1, DEFAULT, e2e_p95_ms=400.0)]
    leaderboard = Leaderboard.of(trials, BASELINES, LATENCY)
    assert leaderboard.reference == Reference((400.0,), LATENCY)
    assert leaderboard.best is trials[1]
    assert leaderboard.score(trials[0]) == pytest.approx(0.5)


@given(
    goods=st.lists(st.sampled_from([None, 0.0, 0.1, 2.0, 50.0]), min_size=2, max_size=2),
    window_s=st.floats(10.0, 100.0),
)
def test_a_goodput_of_nothing_has_a_finite_gain(goods, window_s):
    trials = [
        measured(n, configuration, goodput_request_s=good, window_s=window_s)
        for n, (configuration, good) in enumerate(zip((NONE, DEFAULT), goods, strict=True))
    ]
    leaderboard = Leaderboard.of(trials, BASELINES, GOODPUT)
    scores = [leaderboard.score(trial) for trial in trials]
    assert all(math.isfinite(score) and score > 0 for score in scores)
    # No good request is worse than any number of them; two such are equal.
    order = [good or 0.0 for good in goods]
    assert (scores[0] < scores[1]) == (order[0] < order[1])
    assert max(scores) == pytest.approx(1.0)


def test_a_latency_that_no_answer_had_does_not_win():
    # Answers of one token each have no time per output token.
    metric = Metric("tpot_p95_ms", larger_is_better=False)
    trials = [measured(0, NONE), measured(1, DEFAULT, tpot_p95_ms=math.nan)]
    leaderboard = Leaderboard.of(trials, BASELINES, metric)
    assert leaderboard.best is trials[0]
    state, failure = judge(trials[1].measurements, {"tpot_p95_ms": 50.0})
    assert state is TrialState.INFEASIBLE
    assert "was not measured" in failure.message


def test_judge():
    good = measurement(90.0)
    assert judge([good], {"ttft_p95_ms": 70.0}) == (TrialState.COMPLETE, None)
    state, failure = judge([good], {"ttft_p95_ms": 69.9})
    assert state is TrialState.INFEASIBLE
    assert "ttft_p95_ms 70.0 > 69.9 at concurrency 1" in failure.message
    state, failure = judge([good, measurement(9.0, invalid=("cached_tokens: 8",))], {})
    assert state is TrialState.INVALID
    assert "cached_tokens: 8" in failure.message


def test_the_verdict_says_no_more_than_was_measured():
    running = Trial(0, Purpose.BASELINE, TrialState.RUNNING, NONE)
    nothing = verdict(Leaderboard.of([running], BASELINES))
    assert (nothing.kind, nothing.reason) == ("unconfirmed", "no trial has a result yet")
    none = trial(0, NONE, 90.0)
    assert "this baseline" in verdict(Leaderboard.of([none], BASELINES)).reason
    faster = trial(2, Configuration.of(Speculation("EAGLE3", 2, 1, 3)), 99.0)
    best = verdict(Leaderboard.of([none, trial(1, DEFAULT, 72.0), faster], BASELINES))
    assert (best.kind, "not yet confirmed" in best.reason) == ("unconfirmed", True)
    bad = Trial(0, Purpose.BASELINE, TrialState.INFEASIBLE, NONE)
    assert verdict(Leaderboard.of([bad], BASELINES)).kind == "infeasible"


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({TrialState.INVALID: "invalid_measurement"}, "no configuration has valid windows"),
        ({TrialState.INFEASIBLE: "cuda_oom"}, "no configuration runs"),
        ({TrialState.INFEASIBLE: "constraint"}, "no configuration meets the constraints"),
        (
            {TrialState.INVALID: "invalid_measurement", TrialState.INFEASIBLE: "cuda_oom"},
            "no configuration runs with valid windows",
        ),
    ],
)
def test_a_verdict_without_a_best_says_what_no_configuration_did(states, words):
    trials = [
        Trial(n, Purpose.SEARCH, state, NONE, failure=Failure(kind, "load", "configuration", "?"))
        for n, (state, kind) in enumerate(states.items())
    ]
    said = verdict(Leaderboard.of(trials, BASELINES))
    assert said.kind == "infeasible"
    assert said.reason.endswith(words)


def _open_trial(number: int, configuration: Configuration, good: float):
    point = OperatingPoint(request_rate=4.0)
    measured = measurement(
        90.0, point=point, request_s=4.0, offered_request_s=4.0, goodput_request_s=good
    )
    return Trial(
        number, Purpose.SEARCH, TrialState.COMPLETE, configuration, measurements=(measured,)
    )


@pytest.mark.parametrize(
    ("base", "other", "kind"),
    [
        (3.99, 4.0, "tie"),
        (4.0, 3.99, "tie"),
        # The ceiling is reached, but not by all: the rate does tell them apart.
        (3.5, 4.0, "unconfirmed"),
        (4.0, 3.5, "unconfirmed"),
        # Close to each other below the ceiling: one window each does not make that a tie.
        (2.99, 3.0, "unconfirmed"),
    ],
)
def test_a_rate_that_is_the_loads_own_names_no_winner(base, other, kind):
    metric = Metric("goodput_request_s")
    trials = [_open_trial(0, NONE, base), _open_trial(1, DEFAULT, other)]
    said = verdict(Leaderboard.of(trials, {"none": NONE}, metric))
    assert said.kind == kind
    assert ("raise request_rate or tighten goodput" in said.reason) == (kind == "tie")


def test_several_points_say_which_is_which():
    one, two = measurement(90.0), measurement(945.9, concurrency=16)
    assert describe_speeds([one], "simulated ") == "90.0 simulated tok/s"
    assert describe_speeds([one, two], "") == (
        "90.0 tok/s at concurrency 1, 945.9 tok/s at concurrency 16"
    )
    assert describe_gain(1.046, 1) == "+4.6%"
    assert describe_gain(0.9999, 1) == "+0.0%", "no sign of nothing"
    assert describe_gain(0.5, 2) == "-50.0% (geometric mean over 2 points)"
