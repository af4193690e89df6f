"""Open loops against the scripted server: requests are sent when they are due."""

from __future__ import annotations

import pytest

from runners.base import RunnerError
from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import BuiltInPrompts
from runners.load.schedule.arrivals import poisson
from runners.load.schedule.loops import open_plan
from search_spaces.configuration import Speculation
from search_spaces.workload import Goodput, OperatingPoint, Workload

pytestmark = pytest.mark.slow

NONE = Speculation()
# Between two requests that are due one after the other a busy machine may lose some milliseconds.
SLACK_S = 0.5


def generator(server, point, *, options=None, **more):
    settings = {"output_tokens": 8, "warmup_requests": 0, **more}
    load = Workload(prompts=(("chat", 1.0),), points=(point,), **settings)
    return LoadGenerator(server.url, load, BuiltInPrompts(load.prompts), **(options or {}))


def test_requests_are_sent_when_due_whatever_the_server_does(server, answer):
    # Each takes 0.8 s, they come every 50 ms on average: a closed loop of one would take 8 s.
    server.generate = lambda _n, _b: answer(8, wait_s=0.1)
    point = OperatingPoint(request_rate=20.0, requests=10)
    measurement = generator(server, point).measure(point, speculation=NONE)
    assert measurement.requests == 10
    assert server.most_in_flight > 1
    due = poisson(20.0, 10, 0).times
    for sample, time in zip(measurement.samples, due, strict=True):
        assert 0 <= sample.late_s < SLACK_S
        # `sent_s` counts from the first send, which may be late too.
        assert time - SLACK_S < sample.sent_s < time + SLACK_S


def test_every_configuration_meets_the_same_arrivals(server):
    point = OperatingPoint(request_rate=100.0, requests=8)
    first, second = (generator(server, point).measure(point, speculation=NONE) for _ in range(2))
    offered = 7 / poisson(100.0, 8, 0).times[-1]
    for measurement in (first, second):
        assert measurement.offered_request_s == pytest.approx(offered, rel=0.5)
    assert [s.prompt for s in first.samples] == [s.prompt for s in second.samples]


def test_the_rate_is_in_the_servers_own_time(server):
    # 10 a second of the server's time, which runs 10 times faster: 100 a second of ours.
    point = OperatingPoint(request_rate=10.0, requests=21)
    options = {"time_scale": 10.0, "simulated": True}
    measurement = generator(server, point, options=options).measure(point, speculation=NONE)
    span = poisson(10.0, 21, 0).times[-1]
    assert measurement.window_s == pytest.approx(span, abs=10 * SLACK_S)
    # The last gap closes the window: as many arrivals as gaps.
    expected = 20 / measurement.window_s
    assert measurement.offered_request_s == pytest.approx(expected, rel=0.1)


def test_a_trace_is_replayed(server, tmp_path):
    (tmp_path / "trace.jsonl").write_text("50\n50.3\n50.3\n50.9\n")
    point = OperatingPoint(trace="trace.jsonl", requests=4)
    load = {"base_dir": str(tmp_path)}
    measurement = generator(server, point, **load).measure(point, speculation=NONE)
    due = [0, 0.3, 0.3, 0.9]
    sent = [sample.sent_s for sample in measurement.samples]
    assert sent == pytest.approx(due, abs=SLACK_S)
    assert sent == sorted(sent)
    assert measurement.window_s == pytest.approx(0.9, abs=SLACK_S)
    assert measurement.offered_request_s == pytest.approx(3 / measurement.window_s, rel=0.1)


def test_a_bad_trace_is_the_studys_fault(server, tmp_path):
    point = OperatingPoint(trace=str(tmp_path / "none.jsonl"), requests=4)
    with pytest.raises(RunnerError, match="cannot read") as caught:
        generator(server, point).measure(point, speculation=NONE)
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("bad_trace", "study")
    assert "/generate" not in server.paths()


def test_only_a_simulated_server_is_told_that_arrivals_are_open(server):
    point = OperatingPoint(request_rate=100.0, requests=3)
    generator(server, point).measure(point, speculation=NONE)
    assert server.arrival_headers == {None}
    options = {"simulated": True}
    generator(server, point, options=options).measure(point, speculation=NONE)
    assert server.arrival_headers == {None, "open"}
    server.arrival_headers.clear()
    closed = OperatingPoint(1, requests=3)
    generator(server, closed, options=options).measure(closed, speculation=NONE)
    assert server.arrival_headers == {None}


def test_nothing_in_flight_is_no_stall(server, tmp_path):
    (tmp_path / "trace.jsonl").write_text("0\n1.5\n")
    point = OperatingPoint(trace=str(tmp_path / "trace.jsonl"), requests=2)
    options = {"stall_timeout_s": 1.0}
    measurement = generator(server, point, options=options).measure(point, speculation=NONE)
    assert measurement.requests == 2


def test_a_stall_is_found_in_an_open_loop(server, answer):
    server.generate = lambda _n, _b: (200, [*answer(8)[1][:3], "hang"])
    point = OperatingPoint(request_rate=100.0, requests=5)
    with pytest.raises(RunnerError) as caught:
        generator(server, point, options={"stall_timeout_s": 0.5}).measure(point, speculation=NONE)
    assert caught.value.failure.kind == "stall"


def test_goodput_counts_what_kept_the_limits(server, answer):
    # Every other request takes a second longer than it may.
    server.generate = lambda n, _b: answer(8, wait_s=0.25 if n % 2 else 0.0)
    point = OperatingPoint(1, requests=2)
    limits = Goodput(e2e_ms=1000.0)
    measurement = generator(server, point, goodput=limits).measure(point, speculation=NONE)
    assert measurement.request_s == pytest.approx(2 / measurement.window_s)
    assert measurement.goodput_request_s == pytest.approx(1 / measurement.window_s)
    assert measurement.offered_request_s is None


class TestPlan:
    def test_the_ramp_is_a_requests_time(self):
        arrivals = poisson(10.0, 100, 0)
        plan = open_plan(arrivals, 1.0, 1.0)
        assert plan.ramp == sum(time < 1.0 for time in arrivals.times)
        assert plan.offsets == arrivals.times

    def test_the_ramp_is_a_quarter_at_most(self):
        assert open_plan(poisson(10.0, 100, 0), 1000.0, 1.0).ramp == 25

    def test_no_ramp_without_a_warmup_or_in_a_trace(self):
        arrivals = poisson(10.0, 100, 0)
        assert open_plan(arrivals, None, 1.0).ramp == 0
        trace = type(arrivals)(arrivals.times, stationary=False)
        assert open_plan(trace, 1.0, 1.0).ramp == 0

    def test_real_seconds_are_fewer_where_the_server_is_faster_than_life(self):
        arrivals = poisson(10.0, 100, 0)
        plan = open_plan(arrivals, 0.1, 10.0)
        assert plan.offsets == pytest.approx([time / 10 for time in arrivals.times])
        assert plan.ramp == sum(time < 1.0 for time in arrivals.times)
