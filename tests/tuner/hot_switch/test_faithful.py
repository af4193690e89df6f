"""What tells a faithful switched server from another one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.records import BatchCycles, CycleTimes, PartTime, RequestSample
from runners.replay.runner import _measurement
from runners.replay.table import ReplayRow
from search_spaces.study_file.load import load_study
from tuner.hot_switch.faithful import (
    ACCEPT_LENGTH_AT_MOST,
    CYCLE_SHARE,
    DRAFT_TIME,
    FORWARDS_TIME,
    SPEED,
    VERIFY_TIME,
    compare,
)

STUDY = load_study("kimi-demo")
PARTS = {"draft": 1.0, "draft_extend": 0.3, "verify": 5.8, "rest": 0.2}


def part(milliseconds, *, count=100, graphs=1.0):
    seconds = milliseconds / 1000
    return PartTime(
        count,
        count * seconds,
        median_s=seconds,
        p05_s=0.98 * seconds,
        p95_s=1.1 * seconds,
        graph_share=graphs,
    )


def clock(*, size=1, source="plugin", graphs=None, **changes):
    parts = {**PARTS, **changes}
    batch = BatchCycles(
        size,
        part(sum(parts.values())),
        {name: part(ms, graphs=(graphs or {}).get(name, 1.0)) for name, ms in parts.items()},
    )
    return CycleTimes(source, (batch,))


def measured(*, tok_s=200.0, accept=2.0, cycle=None, **changes):
    workload = STUDY.to_workload()
    row = _measurement(ReplayRow(tok_s, accept), workload, workload.points[0], 0.0)
    return replace(row, cycle=cycle, **changes)


def verdict(own, switched, *, on_gpu=True):
    return compare([own], [switched], on_gpu=on_gpu)


def test_equal_windows_are_faithful_and_the_clock_is_named():
    same = verdict(measured(cycle=clock()), measured(cycle=clock()))
    assert same.faithful
    assert same.clock == "plugin"
    whats = {d.what for d in same.differences}
    assert {"accept length", "cycle at batch 1", "verify at batch 1"} <= whats
    assert "tok/s" not in whats
    assert "graphs of draft_extend at batch 1" in whats
    assert str(same) == f"{len(same.differences)} figures agree, all equal"
    slower = verdict(measured(cycle=clock()), measured(cycle=clock(verify=5.83)))
    assert "figures agree; largest difference: verify at batch 1 +" in str(slower)


def test_tokens_per_second_that_the_clock_does_not_explain_are_named():
    own = measured(tok_s=68.4, cycle=clock())
    held_up = verdict(own, measured(tok_s=51.5, cycle=clock()), on_gpu=False)
    assert held_up.faithful
    assert "51.5 tok/s" in held_up.unexplained
    assert verdict(own, measured(tok_s=62.0, cycle=clock()), on_gpu=False).unexplained is None
    # A clock that is slower too, or drafts that are accepted less, explain it.
    cycles = {name: 1.33 * ms for name, ms in PARTS.items()}
    slower = measured(tok_s=51.5, cycle=clock(**cycles))
    assert verdict(own, slower, on_gpu=False).unexplained is None
    fewer = measured(tok_s=66.5, accept=1.95, cycle=clock())
    assert verdict(own, fewer, on_gpu=False).unexplained is None
    # Without a clock tok/s themselves are compared.
    assert verdict(measured(tok_s=68.4), measured(tok_s=51.5)).unexplained is None


def test_draft_extend_without_its_graph_is_found_although_nothing_else_differs():
    # What 0.5.17 did on one GPU, where it cost nothing that a client sees.
    eager = clock(graphs={"draft_extend": 0.0})
    found = verdict(measured(cycle=clock()), measured(cycle=eager))
    assert not found.faithful
    assert "graphs of draft_extend at batch 1: separate 100%, switched 0%" in str(found)


def test_a_host_that_wanders_between_the_kernels_is_no_fault():
    """At tp 2 it makes parts longer in most cycles, and nothing is wrong."""
    own, other = clock(), clock(draft=1.9, draft_extend=0.4, verify=6.6)
    for name, one in other.batches[0].parts.items():
        other.batches[0].parts[name] = replace(one, p05_s=own.batches[0].parts[name].p05_s)
    assert verdict(measured(cycle=own), measured(cycle=other)).faithful
    # Beyond that it is another cycle, whoever makes it so long.
    waits = clock(verify=9.0)
    waits.batches[0].parts["verify"] = own.batches[0].parts["verify"]
    assert "cycle at batch 1 +43.8 %" in str(verdict(measured(cycle=own), measured(cycle=waits)))


def test_a_part_that_only_one_of_them_has_is_found():
    lacking = clock()
    del lacking.batches[0].parts["draft_extend"]
    found = verdict(measured(cycle=clock()), measured(cycle=lacking))
    assert not found.faithful
    assert "draft_extend" in str(found)


@given(name=st.sampled_from(["draft", "draft_extend", "verify"]), size=st.floats(-0.9, 0.9))
def test_time_decides_by_part_and_a_faster_one_is_as_wrong(name, size):
    long = PARTS | {"draft": 2.0, "draft_extend": 1.5}
    other = clock(**long | {name: long[name] * (1 + size)})
    found = verdict(measured(cycle=clock(**long)), measured(cycle=other))
    forwards = sum(ms for part, ms in long.items() if part != "rest")
    # A draft may move the cycle a little, whatever that is of the draft; all of them no more.
    own = VERIFY_TIME if name == "verify" else CYCLE_SHARE * sum(long.values()) / long[name]
    assert own >= DRAFT_TIME or name == "verify"
    allowed = min(own, FORWARDS_TIME * forwards / long[name])
    if abs(size) < 0.99 * allowed:
        assert found.faithful
    if abs(size) > 1.01 * allowed:
        assert not found.faithful
        assert f"{name} at batch 1" in str(found) or "forwards at batch 1" in str(found)


def test_parts_that_are_each_within_their_limits_are_held_together():
    other = clock(draft=1.19, draft_extend=0.35, verify=6.04)
    found = verdict(measured(cycle=clock()), measured(cycle=other))
    assert str(found).startswith("forwards at batch 1 +6.8 % at concurrency 1 (allowed: 5 %)")
    assert not found.faithful


def test_batch_sizes_that_never_met_are_no_agreement():
    found = verdict(measured(cycle=clock(size=1)), measured(cycle=clock(size=4)))
    assert not found.faithful
    assert "no batch size occurred often enough in both servers" in str(found)


@given(size=st.floats(-0.6, 2.0))
def test_without_a_clock_speed_has_a_wide_band_and_it_is_said(size):
    found = verdict(measured(), measured(tok_s=200 * (1 + size)))
    assert found.clock is None
    if abs(size) < 0.99 * SPEED:
        assert found.faithful
        assert "without cycle times" in str(found)
    if abs(size) > 1.01 * SPEED:
        assert not found.faithful


def test_a_client_that_was_held_up_is_nothing_against_the_servers_clock():
    assert verdict(measured(cycle=clock()), measured(tok_s=20.0, cycle=clock())).faithful
    assert not verdict(measured(), measured(tok_s=20.0)).faithful


def test_clocks_of_two_kinds_are_not_compared():
    found = verdict(
        measured(cycle=clock()), measured(cycle=clock(source="device_timer", verify=50.0))
    )
    assert (found.faithful, found.clock) == (True, None)


def test_a_machine_without_gpus_is_held_to_a_factor():
    slow = {name: 2.5 * ms for name, ms in PARTS.items()}
    own, other = measured(cycle=clock()), measured(tok_s=80.0, cycle=clock(**slow))
    assert verdict(own, other, on_gpu=False).faithful
    assert verdict(other, own, on_gpu=False).faithful
    assert not verdict(own, other).faithful
    own, slower = measured(), measured(tok_s=4.0)
    assert not verdict(own, slower, on_gpu=False).faithful
    assert not verdict(slower, own, on_gpu=False).faithful


def test_another_accept_length_is_found():
    assert verdict(measured(accept=2.0), measured(accept=2.03)).faithful
    assert not verdict(measured(accept=2.0), measured(accept=2.3)).faithful


def test_prompts_that_scatter_explain_a_difference_and_those_that_agree_do_not():
    def samples(correct):
        return tuple(
            RequestSample(f"p{n}", 0.0, 0.1, 1.0, 10, 100, verify_calls=50, correct_drafts=c)
            for n, c in enumerate(correct)
        )

    own = measured(accept=2.0, samples=samples([50, 50, 50, 50]))
    scattered = measured(accept=2.08, samples=samples([80, 40, 70, 26]))
    alike = measured(accept=2.08, samples=samples([54, 54, 54, 54]))
    assert verdict(own, scattered).faithful
    assert not verdict(own, alike).faithful


def test_a_fault_that_some_prompts_meet_does_not_explain_itself():
    def samples(*correct):
        return tuple(
            RequestSample(f"p{n}", 0.0, 0.1, 1.0, 10, 100, verify_calls=50, correct_drafts=c)
            for n, c in enumerate(correct)
        )

    own = measured(accept=2.0, samples=samples(50, 50, 50, 50, 50, 50, 50, 50))
    broken = measured(accept=1.75, samples=samples(50, 50, 50, 50, 50, 50, 0, 0))
    found = verdict(own, broken)
    assert not found.faithful
    assert f"(allowed: {100 * ACCEPT_LENGTH_AT_MOST:.0f} %)" in str(found)


def test_windows_that_are_not_believed_are_no_evidence():
    found = verdict(measured(), measured(invalid=("degenerate: !!!!",)))
    assert not found.faithful
    assert "degenerate" in str(found)


def test_batch_sizes_met_in_passing_are_not_compared():
    def with_tail(ms):
        tail = BatchCycles(2, part(ms, count=5), {"verify": part(ms, count=5)})
        return CycleTimes("plugin", (*clock().batches, tail))

    assert verdict(measured(cycle=with_tail(6.0)), measured(cycle=with_tail(60.0))).faithful


def test_totals_are_compared_by_their_means():
    def totals(verify_s):
        whole = PartTime(100, 1.0)
        return CycleTimes(
            "device_timer", (BatchCycles(0, whole, {"verify": PartTime(100, verify_s)}),)
        )

    same = verdict(measured(cycle=totals(0.58)), measured(cycle=totals(0.59)))
    assert (same.faithful, same.clock) == (True, "device_timer")
    assert not verdict(measured(cycle=totals(0.58)), measured(cycle=totals(0.75))).faithful


@pytest.mark.parametrize("accept", [None, 1.0])
def test_nothing_to_divide_by_is_no_crash(accept):
    zero = measured(tok_s=1.0, accept=accept)
    found = verdict(replace(zero, output_tok_s=0.0), zero)
    assert not found.faithful
    assert not math.isnan(found.worst.size)


def spread(verify, *, cycles=30, sizes=range(1, 16)):
    """Requests that arrived as they liked: no size is a tenth of the cycles."""

    def of(size):
        count = cycles + size
        parts = {"verify": part(verify, count=count), "rest": part(0.2, count=count)}
        return BatchCycles(size, part(verify + 0.2, count=count), parts)

    return CycleTimes("plugin", tuple(map(of, sizes)))


def test_where_no_batch_size_is_met_often_the_one_that_both_met_most_is_compared():
    own = measured(cycle=spread(6.0))
    same = verdict(own, measured(cycle=spread(6.1, sizes=range(3, 20))))
    assert same.faithful
    assert "verify at batch 15" in [d.what for d in same.differences]
    assert not verdict(own, measured(cycle=spread(7.0))).faithful
    rarely = verdict(own, measured(cycle=spread(6.0, cycles=2)))
    assert not rarely.faithful
    assert "no batch size occurred often enough" in str(rarely)
