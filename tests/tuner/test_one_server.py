"""What tells that a switched state is not of the server that it was built in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.one_server import VERIFY_TIME, at_odds

from .test_faithful import PARTS, clock, measured


def found(started, switched, *, drafts=True, on_gpu=True):
    return at_odds([started], [switched], drafts=drafts, on_gpu=on_gpu)


def test_fewer_steps_take_less_time_and_nothing_is_said():
    fewer = clock(draft=0.2, draft_extend=0.25, verify=5.6)
    assert found(measured(cycle=clock()), measured(cycle=fewer)) is None


@pytest.mark.parametrize("part", ["draft", "draft_extend", "verify"])
def test_a_part_that_lost_its_graphs_is_said(part):
    eager = clock(graphs={part: 0.0})
    said = f"graphs of {part}: 100% as started, 0% switched at concurrency 1, batch 1"
    assert found(measured(cycle=clock()), measured(cycle=eager), on_gpu=False) == said


def test_one_step_has_no_draft_forwards_to_be_graphs():
    one = clock(graphs={"draft": 0.0})
    assert found(measured(cycle=clock()), measured(cycle=one), drafts=False) is None


@given(size=st.floats(-0.9, 1.0))
def test_a_verify_of_fewer_tokens_takes_no_longer(size):
    other = clock(verify=PARTS["verify"] * (1 + size))
    said = found(measured(cycle=clock()), measured(cycle=other))
    if size < 0.99 * VERIFY_TIME:
        assert said is None
    if size > 1.01 * VERIFY_TIME:
        assert said is not None
        assert "verify takes 5.68 ms as started" in said
    # Where cores are shared with whatever else there is, times say nothing.
    assert found(measured(cycle=clock()), measured(cycle=other), on_gpu=False) is None


def test_without_a_clock_on_both_sides_nothing_is_known():
    assert found(measured(), measured(cycle=clock(verify=50.0))) is None
    timer = clock(source="device_timer", verify=50.0)
    assert found(measured(cycle=clock()), measured(cycle=timer)) is None
