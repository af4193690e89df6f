"""Cycle times of a window: the difference of two readings, with medians from buckets."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.plugin import cycle_times as module
from runners.plugin.cycle_times import PluginWatch, cycle_times
from runners.plugin.inside_sglang.tuner_sglang_plugin.clock import bucket_of as plugin_bucket_of
from runners.plugin.protocol import bucket_of, bucket_seconds

durations = st.lists(st.floats(1e-5, 1.0), min_size=1, max_size=60)


def counted(seconds, graphs=0):
    buckets: dict[str, int] = {}
    for one in seconds:
        key = str(bucket_of(one))
        buckets[key] = buckets.get(key, 0) + 1
    return {"count": len(seconds), "total_s": sum(seconds), "graphs": graphs, "buckets": buckets}


def clock(size="1", **parts):
    return {size: parts}


@given(seconds=st.floats(1e-6, 100.0))
def test_bucket_is_accurate_to_one_percent(seconds):
    assert bucket_seconds(bucket_of(seconds)) == pytest.approx(seconds, rel=0.0101)


def test_tuner_and_plugin_have_the_same_buckets():
    for exponent in range(-2000, 9000):
        seconds = 1e-6 * 1.0013**exponent
        assert plugin_bucket_of(seconds) == bucket_of(seconds) or seconds == pytest.approx(
            1e-6 * 1.02 ** bucket_of(seconds), rel=1e-9
        )


@given(before=durations, window=durations, scale=st.sampled_from([1.0, 20.0]))
def test_window_is_the_difference_of_two_readings(before, window, scale):
    first = clock(verify=counted(before, graphs=len(before)), cycle=counted(before))
    last = clock(verify=counted(before + window, graphs=len(before)), cycle=counted(before))
    found = cycle_times(first, last, time_scale=scale)
    assert found is not None
    assert found.source == "plugin"
    (batch,) = found.batches
    assert batch.size == 1
    assert batch.cycle.count == 0
    assert set(batch.parts) == {"verify"}
    verify = batch.parts["verify"]
    assert verify.count == len(window)
    assert verify.graph_share == 0.0
    assert verify.total_s == pytest.approx(scale * sum(window))
    ordered = sorted(window)
    assert verify.median_s == pytest.approx(scale * statistics.median_low(ordered), rel=0.0101)
    assert min(ordered) * 0.98 <= verify.p05_s / scale <= 1.02 * ordered[len(ordered) // 20]
    assert min(ordered) * 0.98 <= verify.p95_s / scale <= max(ordered) * 1.02
    assert sum(one <= 1.0101 * verify.p95_s / scale for one in window) >= 0.95 * len(window)


def test_absent_batch_sizes_and_parts_are_omitted():
    idle = counted([])
    first = clock("8", draft=counted([0.1])) | clock("1", draft=counted([0.1]))
    last = (
        clock("8", draft=counted([0.1]))
        | clock("1", draft=counted([0.1]), verify=counted([0.2], graphs=1), cycle=counted([0.3]))
        | clock("16", verify=counted([0.5]), draft=idle)
    )
    found = cycle_times(first, last, time_scale=1.0)
    assert [(b.size, sorted(b.parts), b.cycle.count) for b in found.batches] == [
        (1, ["verify"], 1),
        (16, ["verify"], 0),
    ]
    assert found.batches[0].parts["verify"].graph_share == 1.0
    assert cycle_times(last, last, time_scale=1.0) is None
    assert cycle_times(None, last, time_scale=1.0) is None
    assert cycle_times({}, {}, time_scale=1.0) is None


@pytest.mark.parametrize("failed", [None, "RuntimeError: CUDA error"])
def test_failed_clock_is_reported_and_its_window_has_no_cycle_times(monkeypatch, failed):
    sides = [(clock(verify=counted([0.1])), None), (clock(verify=counted([0.1, 0.2])), failed)]

    def info(_):
        batches, reason = sides.pop(0)
        told = {"running": reason is None, "failed": reason, "batches": batches}
        return {"internal_states": [{"tuner_plugin": {"protocol": 1, "clock": told}}]}

    monkeypatch.setattr(module, "read_server_info", info)
    told = []
    watch = PluginWatch("http://nobody", lambda: None, time_scale=1.0, on_failed=told.append)
    watch.begin()
    assert watch.end() == (), "the window stays valid"
    assert told == ([failed] if failed else [])
    assert (watch.cycle_of(None) is None) is (failed is not None)
