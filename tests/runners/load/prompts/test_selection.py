"""Lengths of answers, and of the answers that are cut at the beginning of a closed loop."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.load.prompts.prompts import BuiltInPrompts, Prompt
from runners.load.prompts.rendering import IdentityRenderer
from runners.load.prompts.selection import answer_lengths, ramp_lengths, select_prompts
from runners.load.window.measurement import fingerprint
from search_spaces.workload import OperatingPoint, Workload

MEANS = st.integers(1, 4096)
SPREADS = st.floats(0, 0.999)
COUNTS = st.integers(1, 300)
SEEDS = st.integers(0, 2**32)
LENGTHS = st.lists(st.integers(1, 4096), min_size=1, max_size=200)


def workload(mean=256, spread=0.5, **more):
    return Workload((("chat", 1.0),), mean, (OperatingPoint(1),), output_spread=spread, **more)


@given(MEANS, SPREADS, COUNTS, SEEDS)
def test_lengths_are_many_bounded_and_of_the_mean(mean, spread, count, seed):
    lengths = answer_lengths(workload(mean, spread), count, seed)
    assert len(lengths) == count
    assert min(lengths) >= max(1, round(mean * (1 - spread)) - 1)
    assert max(lengths) <= round(mean * (1 + spread)) + 1
    # Each length is rounded by half a token at most, and none is below one token.
    short = 1 if mean * (1 - spread) < 1 else 0
    assert -0.5 <= statistics.fmean(lengths) - mean <= 0.5 + short


@given(st.integers(64, 4096), st.sampled_from([0.1, 0.25, 0.5]), st.sampled_from([16, 32, 128]))
def test_the_mean_is_exact_where_nothing_is_rounded(mean, spread, count):
    mean *= 2 * count * 20
    assert statistics.mean(answer_lengths(workload(mean, spread), count, 0)) == mean


@given(MEANS, SPREADS, COUNTS, SEEDS, SEEDS)
def test_every_seed_gives_the_same_lengths_in_its_own_order(mean, spread, count, seed, other):
    load = workload(mean, spread)
    lengths = answer_lengths(load, count, seed)
    assert lengths == answer_lengths(load, count, seed)
    assert sorted(lengths) == sorted(answer_lengths(load, count, other))


def test_the_order_is_the_seeds():
    lengths = [answer_lengths(workload(), 16, seed) for seed in range(3)]
    assert len(set(lengths)) == 3
    assert sorted(lengths[0]) == [
        *(136, 152, 168, 184, 200, 216, 232, 248),
        *(264, 280, 296, 312, 328, 344, 360, 376),
    ]


@given(MEANS, COUNTS, SEEDS)
def test_without_a_spread_all_answers_are_equally_long(mean, count, seed):
    assert answer_lengths(workload(mean, 0.0), count, seed) == (mean,) * count


@given(LENGTHS, st.integers(1, 300))
def test_each_lane_has_a_cut_answer_and_they_ascend(lengths, lanes):
    cut = ramp_lengths(lengths, lanes)
    assert len(cut) == lanes
    assert list(cut) == sorted(cut)
    assert 1 <= cut[0] <= cut[-1] <= max(lengths)


@given(LENGTHS, st.integers(1, 300))
def test_cut_answers_have_the_mean_of_the_equilibrium(lengths, lanes):
    cut = ramp_lengths(lengths, lanes)
    expected = sum(n * n for n in lengths) / (2 * sum(lengths))
    # Rounded to tokens; quantiles of a distribution whose density falls, up to max(lengths).
    assert abs(statistics.fmean(cut) - expected) <= 1 + max(lengths) / (2 * lanes)


def test_of_equal_answers_the_cuts_divide_one_evenly():
    assert ramp_lengths([64] * 16, 4) == (8, 24, 40, 56)
    assert ramp_lengths([64], 0) == ()
    assert ramp_lengths([1] * 4, 4) == (1, 1, 1, 1)


# The fingerprints of these loads by the last version whose answers were all equally long.
PROMPTS = (Prompt("a", "One?"), Prompt("b", "Two?"), Prompt("c", input_ids=(1, 2, 3)))
EARLIER = Workload(
    (("chat", 1.0),), 64, (OperatingPoint(2),), temperature=0.5, sampling=(("top_p", 0.9),)
)
EARLIER_CLOSED = "ebc6b5d3c8c857da65b06cea072651ebd4a333e3fa78c84bf8493c7fa6678b2b"
EARLIER_OPEN = "428ba2db685164dae0b0c7b43d2dac3b5f1530a0fe7410de983a81e3fe482bc5"


@pytest.mark.parametrize("length", [None, 64])
def test_equal_answers_keep_their_earlier_fingerprint(length):
    prompts = [replace(prompt, output_tokens=length) for prompt in PROMPTS]
    assert fingerprint(prompts, EARLIER) == EARLIER_CLOSED
    assert fingerprint(prompts, EARLIER, [0.5, 1.0]) == EARLIER_OPEN


def test_a_spread_and_its_order_change_the_fingerprint():
    def of(*lengths):
        prompts = [
            replace(prompt, output_tokens=length)
            for prompt, length in zip(PROMPTS, lengths, strict=True)
        ]
        return fingerprint(prompts, EARLIER)

    assert len({EARLIER_CLOSED, of(32, 64, 96), of(96, 64, 32), of(48, 64, 80)}) == 4


class TestSelection:
    def select(self, load, concurrency, *, seed=3, **more):
        point = OperatingPoint(concurrency)
        return select_prompts(
            load, point, BuiltInPrompts(load.prompts), IdentityRenderer(), seed, **more
        )

    def test_window_ramp_and_warmup(self):
        load = workload(warmup_requests=2)
        selected = self.select(load, 4)
        lengths = answer_lengths(load, 16, 3)
        assert [prompt.output_tokens for prompt in selected.window] == list(lengths)
        assert [p.output_tokens for p in selected.ramp] == list(ramp_lengths(lengths, 4))
        assert [prompt.output_tokens for prompt in selected.warmup] == [None] * 8
        # The ramp sends prompts of the warm-up, and none of the window.
        ids = [{p.id for p in part} for part in (selected.window, selected.ramp, selected.warmup)]
        assert ids[1] < ids[2]
        assert not ids[0] & ids[2]

    def test_the_ramp_has_prompts_where_there_is_no_warmup(self):
        selected = self.select(workload(warmup_requests=0), 4)
        assert (len(selected.ramp), selected.warmup) == (4, ())
        assert not {p.id for p in selected.ramp} & {p.id for p in selected.window}

    def test_one_lane_and_open_loops_have_no_ramp(self):
        assert self.select(workload(), 1).ramp == ()
        load = workload()
        assert load.ramp_at(OperatingPoint(request_rate=4.0)) == 0

    def test_a_load_without_a_ramp_sends_the_same_window(self):
        load = workload()
        with_ramp, without = self.select(load, 4), self.select(load, 4, ramp=False)
        assert without.ramp == ()
        assert without.window == with_ramp.window

    def test_no_more_lanes_than_requests(self):
        load = workload()
        point = OperatingPoint(8, requests=3)
        assert load.ramp_at(point) == 3
        assert load.prompts_at(point) == 3 + 8

    def test_prompts_that_a_measurement_needs(self):
        assert workload(warmup_requests=0).prompts_at(OperatingPoint(4)) == 16 + 4
        assert workload(warmup_requests=1).prompts_at(OperatingPoint(4)) == 16 + 4
        assert workload(warmup_requests=2).prompts_at(OperatingPoint(4)) == 16 + 8
        assert workload(warmup_requests=0).prompts_at(OperatingPoint(1)) == 16
