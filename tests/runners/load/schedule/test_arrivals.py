"""When the requests of an open loop arrive."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.load.prompts.prompts import Prompt
from runners.load.schedule.arrivals import ArrivalTraceError, arrivals_of, poisson, read_trace
from runners.load.window.measurement import fingerprint
from search_spaces.workload import OperatingPoint, Workload


def workload(point, **more):
    return Workload(prompts=(("chat", 1.0),), output_tokens=8, points=(point,), **more)


@given(st.floats(0.01, 1000), st.integers(1, 200), st.integers(0, 10), st.integers(1, 200))
def test_a_poisson_process(rate, count, seed, more):
    times = poisson(rate, count, seed).times
    assert len(times) == count
    assert times[0] == 0
    assert list(times) == sorted(times)
    assert poisson(rate, count, seed).times == times
    assert poisson(rate, count + more, seed).times[:count] == times
    # Another rate is the same pattern, stretched.
    slower = poisson(rate / 2, count, seed).times
    assert slower == pytest.approx([2 * time for time in times])


def test_its_gaps_are_exponential():
    times = poisson(5.0, 20_001, 1).times
    gaps = [b - a for a, b in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.2, rel=0.03)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert deviation == pytest.approx(mean, rel=0.05)
    share = sum(gap > 0.2 for gap in gaps) / len(gaps)
    assert share == pytest.approx(math.exp(-1), rel=0.05)


def test_seeds_differ():
    assert poisson(1.0, 5, 1).times != poisson(1.0, 5, 2).times


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_a_rate_that_is_none(rate):
    with pytest.raises(ValueError, match="must be a positive number"):
        poisson(rate, 3, 0)


@pytest.mark.parametrize(
    "text",
    [
        '{"timestamp": 100.5}\n{"timestamp": 100.75, "user": 7}\n\n{"timestamp": 103}\n',
        "100.5\n100.75\r\n103",
        '100.5\n{"timestamp": 100.75}\n103\n',
    ],
)
def test_a_trace(tmp_path, text):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    trace = read_trace(path)
    assert trace.times == (0.0, 0.25, 2.5)
    assert not trace.stationary
    assert trace.note is None


@pytest.mark.parametrize("key", ["input_length", "output_length", "hash_ids"])
def test_rows_with_lengths_are_milliseconds(tmp_path, key):
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 27_000 + 40 * n, key: [0]} for n in range(26)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read_trace(path)
    assert trace.times == tuple(40 * n / 1000 for n in range(26))  # 25 requests/s
    assert trace.note is not None
    assert "milliseconds" in trace.note
    assert "lengths are not used" in trace.note


def test_milliseconds_may_be_fractions(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp": 1.5, "input_length": 7}\n{"timestamp": 2.25, "input_length": 7}\n'
    )
    assert read_trace(path).times == (0.0, 0.00075)


@pytest.mark.parametrize(
    ("lines", "mixed"),
    [
        (('{"timestamp": 0, "input_length": 7}', '{"timestamp": 40}'), ("line 1", "line 2")),
        (("0", '{"timestamp": 40, "hash_ids": [0]}'), ("line 2", "line 1")),
    ],
)
def test_a_trace_of_two_units_is_refused(tmp_path, lines, mixed):
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines))
    in_ms, in_s = mixed
    with pytest.raises(ArrivalTraceError, match=f"{in_ms} has .* milliseconds.* {in_s} .*seconds"):
        read_trace(path)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50).map(sorted))
def test_any_sorted_times_are_read_back(tmp_path_factory, times):
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    path.write_text("\n".join(json.dumps({"timestamp": time}) for time in times))
    assert read_trace(path).times == tuple(time - times[0] for time in times)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no arrival times"),
        ("\n\n", "has no arrival times"),
        ("1\ntwo\n", "line 2: 'two' is not a number or a JSON object"),
        ("1\n{}\n", "line 2: the object has no 'timestamp'"),
        ('{"timestamp": "now"}', "line 1: 'now' is not a number"),
        ("true", "line 1: True is not a number"),
        ("[1]", r"line 1: \[1\] is not a number"),
        ("2\n\n1\n", r"line 3: 1 is earlier than the previous time 2; sort the trace"),
        ("NaN", "line 1: 'NaN' is not a number or a JSON object"),
        ("1e999", "line 1"),
    ],
)
def test_a_trace_that_is_none(tmp_path, text, message):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(ArrivalTraceError, match=message):
        read_trace(path)


def test_a_trace_from_an_editor_that_marks_its_files(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\xef\xbb\xbf1\r\n2.5\r\n")
    assert read_trace(path).times == (0.0, 1.5)


@pytest.mark.parametrize(
    "text", ["0\n1e308\n", "-1e308\n1e308\n", "1700000000000\n1700700000000\n"]
)
def test_a_trace_that_never_ends(tmp_path, text):
    (tmp_path / "day.jsonl").write_text(text)
    point = OperatingPoint(trace="day.jsonl", requests=2)
    with pytest.raises(ArrivalTraceError, match=r"over a week; .* divide milliseconds"):
        arrivals_of(point, workload(point, base_dir=str(tmp_path)), 0)


def test_a_rate_that_never_ends():
    point = OperatingPoint(request_rate=1e-300, requests=2)
    with pytest.raises(ArrivalTraceError, match="over a week; use a higher rate"):
        arrivals_of(point, workload(point), 0)
    alone = OperatingPoint(request_rate=1e-300, requests=1)
    assert arrivals_of(alone, workload(alone), 0).times == (0.0,)


def test_a_trace_in_milliseconds(tmp_path):
    (tmp_path / "day.jsonl").write_text("".join(f"{250_000 * n}\n" for n in range(8)))
    point = OperatingPoint(trace="day.jsonl", requests=2)
    with pytest.raises(ArrivalTraceError, match="divide milliseconds by 1000"):
        arrivals_of(point, workload(point, base_dir=str(tmp_path)), 0)
    (tmp_path / "day.jsonl").write_text("0\n60\n")
    assert arrivals_of(point, workload(point, base_dir=str(tmp_path)), 0).times == (0.0, 60.0)


def test_a_rate_so_low_that_it_is_no_load():
    point = OperatingPoint(request_rate=0.01, requests=2)
    with pytest.raises(ArrivalTraceError, match="one request in 100 s"):
        arrivals_of(point, workload(point), 0)


def test_a_path_with_a_zero_byte():
    with pytest.raises(ArrivalTraceError, match="cannot read"):
        read_trace("a\0b")


def test_a_missing_trace(tmp_path):
    with pytest.raises(ArrivalTraceError, match=r"cannot read .*day\.jsonl: No such file"):
        read_trace(tmp_path / "day.jsonl")


def test_the_arrivals_of_a_point(tmp_path):
    (tmp_path / "day.jsonl").write_text("1\n2\n4\n")
    point = OperatingPoint(trace="day.jsonl", requests=2)
    load = workload(point, base_dir=str(tmp_path))
    assert arrivals_of(point, load, 0).times == (0.0, 1.0)
    longer = OperatingPoint(trace="day.jsonl", requests=4)
    with pytest.raises(ArrivalTraceError, match="has 3 arrivals, but a window sends 4"):
        arrivals_of(longer, load, 0)
    rate = OperatingPoint(request_rate=2.0, requests=9)
    assert arrivals_of(rate, load, 3) == poisson(2.0, 9, 3)
    with pytest.raises(ValueError, match="closed loop"):
        arrivals_of(OperatingPoint(1), load, 0)


def test_other_arrivals_are_another_load():
    load = workload(OperatingPoint(request_rate=2.0))
    prompts = (Prompt("a", text="Hello"),)
    plain = fingerprint(prompts, load)
    loads = {plain, *(fingerprint(prompts, load, poisson(2.0, 5, s).times) for s in (0, 1))}
    assert len(loads) == 3
    assert fingerprint(prompts, load, poisson(2.0, 5, 1).times) in loads
    assert fingerprint(prompts, load, ()) == plain
