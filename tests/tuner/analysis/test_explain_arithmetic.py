"""Shares, bounds and break-even: what holds whatever was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.records import PARTS, BatchCycles, CycleTimes, PartTime
from tuner.analysis.bounds import Chain, gain_if_instant, gain_if_shorter, widest_gain
from tuner.analysis.mean_cycle import FORWARDS, MeanCycle, mean_cycle, mean_cycles, mean_of

from ..cycles import batch, part, plugin

SECONDS = st.floats(0, 1e3, allow_nan=False)
SHARES = st.floats(0, 1)


@st.composite
def any_part(draw) -> PartTime:
    count = draw(st.integers(0, 1000))
    return PartTime(count, draw(SECONDS) if count else 0.0)


@st.composite
def any_batch(draw, size: int) -> BatchCycles:
    names = draw(st.sets(st.sampled_from(PARTS)))
    return BatchCycles(size, draw(any_part()), {name: draw(any_part()) for name in sorted(names)})


@st.composite
def any_times(draw) -> CycleTimes:
    sizes = sorted(draw(st.sets(st.integers(0, 64), max_size=4)))
    return CycleTimes("plugin", tuple(draw(any_batch(size)) for size in sizes))


@given(any_times())
def test_shares_are_shares(times):
    for cycle in (*mean_cycles(times).values(), mean_cycle(times)):
        if cycle is None:
            continue
        assert set(cycle.shares) == set(PARTS)
        assert all(0 <= share <= 1 for share in cycle.shares.values())
        assert sum(cycle.shares.values()) == pytest.approx(1)
        assert cycle.count > 0
        assert cycle.total_s > 0
        assert cycle.share(PARTS) <= 1
        assert cycle.share(("verify", "verify")) == cycle.shares["verify"]
        assert cycle.shares[cycle.dominant] == max(cycle.shares.values())


def test_a_window_without_cycles_has_no_mean():
    assert mean_cycle(CycleTimes("plugin", ())) is None
    assert mean_of(()) is None
    for nothing in ({}, {"verify": PartTime(0, 0.0)}, {"verify": PartTime(5, 0.0)}):
        assert mean_cycle(plugin(BatchCycles(1, PartTime(0, 0.0), nothing))) is None


def test_each_cycle_counts_once():
    """Adaptive steps: a draft in half of the cycles; what lies between is seen of some of them."""
    seen = BatchCycles(
        2,
        part(12.0, 30),
        {"draft": part(4.0, 50), "verify": part(8.0, 100), "rest": part(1.0, 30)},
    )
    cycle = mean_cycle(plugin(seen))
    assert cycle is not None
    assert cycle.count == 100
    milliseconds = {name: 1000 * seconds for name, seconds in cycle.parts.items()}
    assert milliseconds == pytest.approx(
        {"draft": 2.0, "draft_extend": 0.0, "verify": 8.0, "rest": 1.0}
    )


def test_batches_are_weighed_by_their_cycles_and_an_unseen_rest_is_that_of_the_others():
    without = BatchCycles(1, part(0.0, 0), {"verify": part(10.0, 300)})
    cycle = mean_cycle(plugin(without, batch(8, 100, verify=20.0, rest=2.0)))
    assert cycle is not None
    assert 1000 * cycle.parts["verify"] == pytest.approx((300 * 10 + 100 * 20) / 400)
    assert 1000 * cycle.parts["rest"] == pytest.approx(2.0)
    assert cycle.rest_known
    alone = mean_cycle(plugin(without))
    assert alone is not None
    assert alone.parts["rest"] == 0
    assert not alone.rest_known


@given(SHARES, SHARES)
def test_a_larger_share_buys_no_less(a, b):
    low, high = sorted((a, b))
    assert 0 <= gain_if_instant(low) <= gain_if_instant(high)
    assert 0 <= gain_if_shorter(low, 0.1) <= gain_if_instant(low)
    assert gain_if_shorter(high, low) <= gain_if_shorter(high, high)


def test_known_gains():
    assert gain_if_instant(0) == 0
    assert gain_if_instant(0.2) == pytest.approx(0.25)
    assert gain_if_instant(1) == math.inf
    assert gain_if_shorter(0.5, 0.2) == pytest.approx(1 / 0.9 - 1)


@given(st.lists(SECONDS, min_size=4, max_size=4).filter(lambda s: sum(s) > 0), st.data())
def test_amdahl_is_what_leaving_the_parts_out_gives(seconds, data):
    cycle = MeanCycle(1, dict(zip(PARTS, seconds, strict=True)))
    gone = data.draw(st.sets(st.sampled_from(PARTS)))
    left = sum(s for name, s in cycle.parts.items() if name not in gone)
    gain = gain_if_instant(cycle.share(gone))
    if left > 1e-6 * cycle.total_s:
        assert gain == pytest.approx(cycle.total_s / left - 1, rel=1e-6, abs=1e-9)
    more = data.draw(st.sets(st.sampled_from(PARTS)))
    assert gain_if_instant(cycle.share(gone | more)) >= gain * (1 - 1e-9)


# Another number of steps

FEW_MS = st.floats(0, 50)


@st.composite
def machines(draw):
    """A machine as it is assumed; the deeper a draft, the rarer is it right."""
    deepest = 8
    # What a token costs never grows with their number, and a longer forward is never shorter.
    forward = [draw(st.floats(0.1, 50))]
    for tokens in range(1, deepest + 1):
        forward.append(forward[-1] * draw(st.floats(1, (tokens + 1) / tokens)))
    at_least = sorted(draw(st.lists(SHARES, min_size=deepest, max_size=deepest)), reverse=True)
    step, extend, rest = draw(FEW_MS), draw(FEW_MS), draw(FEW_MS)

    def cycle(steps: int) -> MeanCycle:
        parts = {
            "draft": step * (steps - 1),
            "draft_extend": extend * (steps + 1),
            "verify": forward[steps],
            "rest": rest,
        }
        return MeanCycle(100, parts)

    def accept_length(steps: int) -> float:
        return 1 + sum(at_least[:steps])

    return cycle, accept_length, tuple(at_least), forward[0]


@given(machines(), st.integers(1, 8), st.integers(1, 8), st.booleans(), st.booleans())
def test_no_other_depth_is_faster_than_its_bound(
    machine, steps, other, knows_decode, knows_histogram
):
    cycle, accept_length, at_least, decode = machine
    chain = Chain(
        steps,
        accept_length(steps),
        at_least[:steps] if knows_histogram else (),
        cycle(steps),
        decode if knows_decode else None,
    )
    speed = accept_length(other) / cycle(other).total_s
    gain = speed * cycle(steps).total_s / accept_length(steps) - 1
    assert gain <= chain.gain_at(other) * (1 + 1e-9) + 1e-9
    assert chain.gain_at(other) >= 0
    assert chain.gain_at(steps) == 0


@given(machines(), st.integers(1, 8), st.integers(1, 8))
def test_more_knowledge_never_loosens_a_bound(machine, steps, other):
    cycle, accept_length, at_least, decode = machine
    known = Chain(steps, accept_length(steps), at_least[:steps], cycle(steps), decode)
    bound = known.gain_at(other)
    for less in (replace(known, at_least=()), replace(known, decode_s=None)):
        assert bound <= less.gain_at(other) * (1 + 1e-9) + 1e-12


@given(
    st.integers(1, 10),
    st.floats(0, 20),
    st.lists(st.integers(0, 100), max_size=12),
    st.fixed_dictionaries(dict.fromkeys(PARTS, SECONDS)).filter(lambda p: sum(p.values()) > 0),
    st.none() | SECONDS,
)
def test_odd_figures_give_no_negative_bound_and_no_error(steps, accept, histogram, parts, decode):
    chain = Chain.of(steps, accept, histogram, MeanCycle(1, parts), decode)
    for other in range(1, 12):
        assert chain.gain_at(other) >= 0
    assert widest_gain(steps, accept) >= 0
    best = chain.best_gain(range(12))
    assert best is not None
    assert best[1] == max(chain.gain_at(n) for n in range(1, 12) if n != steps)
    assert chain.best_gain([0, steps]) is None


def test_the_bound_of_a_tree_is_that_every_draft_is_right():
    assert widest_gain(3, 2.0) == pytest.approx(1.0)
    assert widest_gain(3, 4.0) == 0


def test_the_parts_that_run_a_model_are_parts():
    assert set(FORWARDS) < set(PARTS)
