"""What tells that a switched state is not of the server that another state of it is of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.records import PartTime
from search_spaces.configuration import Setting
from tuner.hot_switch.one_server import VERIFY_TIME, State, StateComparison, compare_states

from .test_faithful import PARTS, clock, measured

FIVE, TWO = Setting(5), Setting(2)


def found(first, then, *, known=FIVE, other=TWO, on_gpu=True):
    reference = State(known, (measured(cycle=first),))
    return compare_states(reference, State(other, (measured(cycle=then),)), on_gpu=on_gpu)


def test_fewer_steps_take_less_time_and_nothing_is_said():
    fewer = clock(draft=0.2, draft_extend=0.25, verify=5.6)
    assert found(clock(), fewer) == StateComparison()


@pytest.mark.parametrize("part", ["draft", "draft_extend", "verify"])
def test_a_part_that_lost_its_graphs_is_said(part):
    eager = clock(graphs={part: 0.0})
    said = f"{part} runs 0% as CUDA graphs, but 100% at 5 steps at concurrency 1, batch 1"
    assert found(clock(), eager, on_gpu=False) == StateComparison(said)


def test_one_step_has_no_draft_forwards_to_be_graphs():
    one = clock(graphs={"draft": 0.0})
    assert found(clock(), one, other=Setting(1)) == StateComparison()
    assert found(clock(), one).difference is not None


def test_a_part_that_is_missing_is_said():
    without = clock()
    [batch] = without.batches
    parts = {name: part for name, part in batch.parts.items() if name != "draft_extend"}
    difference = found(clock(), replace(without, batches=(replace(batch, parts=parts),))).difference
    assert difference == "draft_extend is missing, but exists at 5 steps at concurrency 1, batch 1"


@given(factor=st.floats(0.1, 4.0), known=st.integers(2, 9), other=st.integers(2, 9))
def test_a_verify_takes_between_the_same_and_as_much_more_as_it_has_tokens(factor, known, other):
    a, b = Setting(known), Setting(other)
    difference = found(clock(), clock(verify=PARTS["verify"] * factor), known=a, other=b).difference
    grows = (other + 1) / (known + 1)
    least, most = min(1.0, grows), max(1.0, grows)
    if least / (1 + 0.99 * VERIFY_TIME) < factor < most * (1 + 0.99 * VERIFY_TIME):
        assert difference is None
    if not least / (1 + 1.01 * VERIFY_TIME) < factor < most * (1 + 1.01 * VERIFY_TIME):
        assert difference is not None
        assert f"but 5.68 ms at {known} steps" in difference
    # Where cores are shared with whatever else there is, times say nothing.
    other_machine = found(
        clock(), clock(verify=PARTS["verify"] * factor), known=a, other=b, on_gpu=False
    )
    assert other_machine == StateComparison()


def test_a_draft_has_a_forward_for_each_step_but_the_first():
    assert (
        found(clock(draft=1.0), clock(draft=0.25), known=Setting(5), other=TWO) == StateComparison()
    )
    assert found(clock(draft=1.0), clock(draft=4.0), known=TWO, other=FIVE) == StateComparison()
    said = found(clock(draft=1.0), clock(draft=9.0), known=TWO, other=FIVE).difference
    assert said == "draft takes 8.82 ms, but 0.98 ms at 2 steps at concurrency 1, batch 1"


def test_where_only_one_has_a_clock_or_no_batch_size_is_common_nothing_is_told():
    assert found(None, None) == StateComparison(), "nobody keeps one"
    lost = found(clock(), None)
    assert lost == StateComparison(
        unknown="only one of the two settings has cycle times at concurrency 1"
    )
    assert found(clock(), clock(source="device_timer")) == lost
    other = clock()
    other = replace(other, batches=(replace(other.batches[0], size=7),))
    unknown = found(clock(), other).unknown
    assert unknown == "no batch size occurred often enough at concurrency 1"


def test_what_is_told_at_one_point_is_no_excuse_for_another():
    reference = State(FIVE, (measured(cycle=clock()), measured(cycle=clock())))
    state = State(TWO, (measured(cycle=None), measured(cycle=clock(verify=20.0))))
    assert compare_states(reference, state, on_gpu=True).difference is not None
    fine = State(TWO, (measured(cycle=None), measured(cycle=clock())))
    assert compare_states(reference, fine, on_gpu=True).unknown is not None


def test_a_part_of_no_runs_is_not_compared():
    [batch] = clock().batches
    none = replace(batch, parts={**batch.parts, "draft": PartTime(0, 0.0)})
    assert found(replace(clock(), batches=(none,)), clock()) == StateComparison()
