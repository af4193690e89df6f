"""Variance components: planted ones are recovered, and limits hold as often as they say."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.noise import variance
from benchmarks.noise.variance import crossed, mean_of, nested, trend

from ..examples import examples

PLANTED = {"prompt": 0.05, "launch": 0.02, "block": 0.01, "prompt_launch": 0.015, "residual": 0.01}


@pytest.fixture(autouse=True, scope="module")
def _few_draws():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variance, "DRAWS", 400)
        yield


def drawn(rng, launches, blocks, prompts, planted=None):
    """Figures of launches, blocks and prompts, with normal effects of these deviations."""
    sd = PLANTED if planted is None else planted
    of_prompt = [rng.gauss(0, sd["prompt"]) for _ in range(prompts)]
    figures = []
    for _ in range(launches):
        launch = rng.gauss(0, sd["launch"])
        both = [rng.gauss(0, sd["prompt_launch"]) for _ in range(prompts)]
        figures.append([])
        for _ in range(blocks):
            block = launch + rng.gauss(0, sd["block"])
            figures[-1].append(
                [
                    block + of_prompt[p] + both[p] + rng.gauss(0, sd["residual"])
                    for p in range(prompts)
                ]
            )
    return figures


def test_a_large_experiment_shows_what_was_planted():
    split = crossed(drawn(random.Random(1), launches=60, blocks=8, prompts=60))
    for component, planted in PLANTED.items():
        estimate = split.deviation(component)
        assert estimate.value == pytest.approx(planted, rel=0.25), component
        assert estimate.low < planted < estimate.high, component
    # A window's mean has a sixtieth of the prompts' rest in it.
    blocks = nested(
        [
            [statistics.fmean(block) for block in launch]
            for launch in drawn(random.Random(1), 60, 8, 60)
        ]
    )
    expected = math.sqrt(PLANTED["block"] ** 2 + PLANTED["residual"] ** 2 / 60)
    assert blocks.deviation("block").value == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("launches", [3, 5])
def test_limits_of_few_launches_hold_as_often_as_they_say(launches):
    rng = random.Random(launches)
    experiments = 150
    held = dict.fromkeys(("prompt", "launch", "block", "window"), 0)
    unbiased = []
    for _ in range(experiments):
        split = crossed(drawn(rng, launches, blocks=8, prompts=8))
        of = {name: split.variance({name: 1.0}) for name in ("prompt", "launch", "block")}
        of["window"] = split.variance({"launch": 1.0, "block": 1.0, "residual": 1 / 8})
        truth = {name: PLANTED[name] ** 2 for name in ("prompt", "launch", "block")}
        truth["window"] = truth["launch"] + truth["block"] + PLANTED["residual"] ** 2 / 8
        unbiased.append(of["launch"].value / truth["launch"])
        for name, estimate in of.items():
            held[name] += estimate.low <= truth[name] <= estimate.high
    # 90 % is said; 150 experiments tell it to 5 % (two deviations).
    assert all(0.84 <= count / experiments <= 0.97 for count in held.values()), held
    assert statistics.fmean(unbiased) == pytest.approx(1.0, abs=0.25)


def test_three_launches_know_little_of_launches():
    split = crossed(drawn(random.Random(0), launches=3, blocks=8, prompts=8))
    launch = split.deviation("launch")
    assert launch.high > 3 * launch.value  # two degrees of freedom


def test_what_is_not_there_comes_out_as_nothing_with_an_upper_limit():
    planted = PLANTED | {"launch": 0.0, "block": 0.0}
    found = [
        crossed(drawn(random.Random(seed), 3, 8, 8, planted)).deviation("launch")
        for seed in range(20)
    ]
    assert sum(launch.value == 0 for launch in found) >= 5
    # Each limit is missed by 5 %.
    assert sum(launch.low == 0 for launch in found) >= 17
    assert sum(launch.high > 0 for launch in found) >= 17


figures = st.integers(0, 2**32).map(lambda seed: drawn(random.Random(seed), 3, 2, 4))


@settings(max_examples=examples(30))
@given(figures, st.floats(-5, 5), st.floats(0.1, 10))
def test_deviations_follow_the_scale_and_not_the_level(ys, level, scale):
    one = crossed(ys)
    other = crossed([[[level + scale * y for y in block] for block in launch] for launch in ys])
    for component in PLANTED:
        assert other.deviation(component).value == pytest.approx(
            scale * one.deviation(component).value, rel=1e-6, abs=1e-8
        )


@settings(max_examples=examples(30))
@given(figures, st.randoms(use_true_random=False))
def test_the_order_of_launches_blocks_and_prompts_says_nothing(ys, rng):
    prompts = list(range(len(ys[0][0])))
    rng.shuffle(prompts)
    other = [[[block[p] for p in prompts] for block in launch] for launch in ys]
    rng.shuffle(other)
    for launch in other:
        rng.shuffle(launch)
    one, two = crossed(ys), crossed(other)
    for component in PLANTED:
        assert two.deviation(component).value == pytest.approx(
            one.deviation(component).value, abs=1e-9
        )


@settings(max_examples=examples(30))
@given(figures)
def test_mean_squares_share_out_the_whole_sum_of_squares(ys):
    squares = crossed(ys).squares
    every = [y for launch in ys for block in launch for y in block]
    whole = sum((y - statistics.fmean(every)) ** 2 for y in every)
    assert sum(s.value * s.df for s in squares.values()) == pytest.approx(whole)
    assert sum(s.df for s in squares.values()) == len(every) - 1


@pytest.mark.parametrize("wrong", [[[1.0, 2.0]], [[1.0], [2.0]], [[1.0, 2.0], [1.0]]])
def test_too_few_or_uneven_figures_are_refused(wrong):
    with pytest.raises(ValueError, match="at least 2"):
        nested(wrong)


def test_a_planted_trend_is_found_and_launches_have_levels_of_their_own():
    rng = random.Random(3)
    slope = 1e-4
    launches = [
        [(10.0 * n, level + slope * 10 * n + rng.gauss(0, 1e-3)) for n in range(20)]
        for level in (0.0, 0.5, -0.2)
    ]
    found = trend(launches)
    assert found.slope.low < slope < found.slope.high
    assert found.slope.high - found.slope.low < slope / 5
    assert abs(found.after) < 0.4
    # A slow wave is no straight line: what is left of neighbours is alike, and that is said.
    wave = [[(float(n), math.sin(n / 5)) for n in range(60)]]
    assert trend(wave).after > 0.8
    with pytest.raises(ValueError, match="no slope"):
        trend([[(0.0, 1.0), (1.0, 2.0)]])


def test_means_of_few_have_wide_limits():
    one = mean_of([1.0])
    assert (one.value, one.low, one.high) == (1.0, -math.inf, math.inf)
    few = mean_of([1.0, 2.0, 3.0])
    assert few.value == 2.0
    assert few.high == pytest.approx(2 + 2.92 / math.sqrt(3), abs=1e-3)


@settings(max_examples=examples(30))
@given(st.lists(st.floats(0.1, 2), min_size=2, max_size=6))
def test_parts_of_a_variance_add_up(parts):
    split = nested([(0, 1, 2), (3, 4, 5), (6, 7, 8)])
    total = sum(split.variance({"block": part}).value for part in parts)
    assert split.variance({"block": sum(parts)}).value == pytest.approx(total)
