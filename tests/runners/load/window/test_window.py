"""What is counted of a load, and where: by hand-made flights, and in ramp, window and drain."""

from __future__ import annotations

import dataclasses
import math
import statistics
from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.base import RunnerError
from runners.load.generator import LoadGenerator
from runners.load.http.endpoint import Answer
from runners.load.http.in_flight import InFlightRequest
from runners.load.prompts.prompts import BuiltInPrompts, Prompt
from runners.load.schedule.loops import LoopReport, closed_plan
from runners.load.window.measurement import measurement_of
from runners.load.window.watches import WindowWatch
from runners.load.window.window import Window, end_of_burst, percentile, window_of
from search_spaces.configuration import Speculation
from search_spaces.workload import Goodput, OperatingPoint, Workload

from ..timing import codes

pytestmark = pytest.mark.slow

NONE = Speculation()
CHAIN = Speculation("EAGLE3", 3, 1, 4)


def flight(name, sent, times, tokens=None, **more):
    tokens = tokens or range(1, len(times) + 1)
    last = list(tokens)[-1] if times else 0
    answer = Answer(completion_tokens=last, prompt_tokens=7, finish_reason="length", **more)
    return InFlightRequest(
        name, b"", None, 0.0, sent, array("d", times), array("q", tokens), answer
    )


def measured(window, *, point=None, speculation=NONE, goodput=None, time_scale=1.0, **more):
    point = point or OperatingPoint(2)
    load = Workload((("chat", 1.0),), 4, (point,), goodput=goodput)
    prompts = [Prompt(f.prompt, f"{n} {f.prompt}") for n, f in enumerate(window.flights)]
    return measurement_of(
        window,
        prompts,
        workload=load,
        point=point,
        speculation=speculation,
        time_scale=time_scale,
        simulated=False,
        **more,
    )


# Two lanes; each request takes 4 s: its first token after 1, the others 1 apart. The window opens
# with the second lane, at 2, and closes when the first finds no more work, at 12.
LANES = (
    flight("a", 0.0, [1.0, 2.0, 3.0, 4.0]),
    flight("b", 2.0, [3.0, 4.0, 5.0, 6.0]),
    flight("c", 4.0, [5.0, 6.0, 7.0, 8.0]),
    flight("d", 6.0, [7.0, 8.0, 9.0, 10.0]),
    flight("e", 8.0, [9.0, 10.0, 11.0, 12.0]),
    flight("f", 10.0, [11.0, 11.5, 12.5, 13.0]),
)
WINDOW = Window(1000.0, 2.0, 12.0, LANES, 0.3)


def test_tokens_of_the_window_are_exact():
    # a's last two (its second arrived at the very opening), all of b to e, f's first two.
    assert WINDOW.tokens == 2 + 4 * 4 + 2
    measurement = measured(WINDOW)
    assert measurement.output_tokens == 20
    assert measurement.output_tok_s == pytest.approx(2.0)
    assert (measurement.requests, measurement.window_s) == (6, 10.0)
    assert measurement.client_cpu_share == 0.3


def test_latencies_are_of_whole_lives_inside_the_window():
    assert [f.prompt for f in WINDOW.counted()] == ["b", "c", "d", "e"]
    measurement = measured(WINDOW)
    assert measurement.ttft_p50_ms == measurement.ttft_p99_ms == pytest.approx(1000)
    assert measurement.tpot_p50_ms == measurement.tpot_p99_ms == pytest.approx(1000)
    assert measurement.e2e_p50_ms == measurement.e2e_p99_ms == pytest.approx(4000)
    assert measurement.user_tok_s == pytest.approx(1.0)


def test_requests_per_second_are_of_those_that_ended_inside_it():
    # a, which began before it, too; not f, which ended after it.
    assert [f.prompt for f in WINDOW.finished()] == ["a", "b", "c", "d", "e"]
    assert measured(WINDOW).request_s == pytest.approx(0.5)


def test_a_long_answer_that_is_cut_off_takes_those_after_it_along():
    # Whoever ended in time after it was sent would be a choice of short answers.
    long = flight("d", 6.0, [7.0, 9.0, 11.0, 13.0])
    window = dataclasses.replace(WINDOW, flights=(*LANES[:3], long, *LANES[4:]))
    assert [f.prompt for f in window.counted()] == ["b", "c"]


def test_short_windows_count_what_they_have():
    short = Window(0.0, 2.0, 5.5, LANES[:4])
    assert [f.prompt for f in short.counted()] == ["b", "c"]  # both are cut off
    empty = Window(0.0, 20.0, 21.0, LANES[:2])
    assert [f.prompt for f in empty.counted()] == ["a", "b"]


def test_failed_requests_have_no_latency():
    failed = flight("d", 6.0, [7.0, 8.0])
    failed.error = "HTTP 500"
    window = dataclasses.replace(WINDOW, flights=(*LANES[:3], failed, *LANES[4:]))
    assert [f.prompt for f in window.counted()] == ["b", "c", "e"]
    measurement = measured(window)
    assert (measurement.requests, measurement.failed_requests) == (5, 1)
    assert measurement.request_s == pytest.approx(0.4)
    assert measurement.output_tokens == 18  # its tokens did arrive


def test_times_between_chunks_and_tokens_per_chunk():
    # Chunks of 3 and 2 tokens after the prefill's one.
    one = flight("a", 0.0, [1.0, 1.5, 2.5], [1, 4, 6], verify_calls=2, correct_drafts=3)
    measurement = measured(Window(0.0, 0.0, 3.0, (one,)), speculation=CHAIN)
    assert measurement.chunk_p50_ms == pytest.approx(750)
    assert measurement.chunk_p95_ms == pytest.approx(975)
    assert measurement.tokens_per_chunk == pytest.approx(2.5)
    assert measurement.user_tok_s == pytest.approx(5 / 1.5)
    # Only gaps that lie in the window wholly: f's one over the closing does not.
    assert min(WINDOW.chunk_gaps()) == 0.5
    assert len(WINDOW.chunk_gaps()) == 2 + 4 * 3 + 1


def test_accept_rate():
    one = flight("a", 0.0, [1.0, 2.0], [1, 4], verify_calls=2, correct_drafts=3, proposed_drafts=6)
    window = Window(0.0, 0.0, 3.0, (one,))
    assert measured(window, speculation=CHAIN).accept_rate == pytest.approx(0.5)
    assert measured(window).accept_rate is None
    # After a switch SGLang goes on to count with the width of its start.
    switched = flight(
        "a", 0.0, [1.0, 2.0], [1, 4], verify_calls=2, correct_drafts=3, proposed_drafts=10
    )
    window = Window(0.0, 0.0, 3.0, (switched,))
    assert measured(window, speculation=CHAIN).accept_rate == pytest.approx(0.5)
    of_its_start = replace(CHAIN, num_draft_tokens=6)
    assert measured(window, speculation=of_its_start).accept_rate == pytest.approx(0.5)
    unknown = replace(CHAIN, num_draft_tokens=None)
    assert measured(window, speculation=unknown).accept_rate == pytest.approx(0.3)
    silent = flight("a", 0.0, [1.0, 2.0], [1, 4], verify_calls=2, correct_drafts=3)
    window = Window(0.0, 0.0, 3.0, (silent,))
    assert measured(window, speculation=unknown).accept_rate is None


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        (Goodput(), 5),
        (Goodput(ttft_ms=1000), 5),
        (Goodput(ttft_ms=999), 0),
        (Goodput(tpot_ms=1000, e2e_ms=4000), 5),
        (Goodput(tpot_ms=999), 0),
        (Goodput(e2e_ms=3999), 0),
    ],
)
def test_goodput(limits, good):
    assert measured(WINDOW, goodput=limits).goodput_request_s == pytest.approx(good / 10)


def test_all_times_are_in_the_servers_own_time():
    measurement = measured(WINDOW, time_scale=10.0)
    assert measurement.window_s == pytest.approx(100)
    assert measurement.output_tok_s == pytest.approx(0.2)
    assert measurement.request_s == pytest.approx(0.05)
    assert measurement.chunk_p50_ms == pytest.approx(10_000)
    assert measurement.user_tok_s == pytest.approx(0.1)
    assert [s.sent_s for s in measurement.samples] == [-20, 0, 20, 40, 60, 80]


def test_lateness_counts_beside_ttft():
    late = flight("a", 1.25, [2.0, 3.0])
    late.due = 1.0
    sample = measured(Window(0.0, 0.0, 4.0, (late,))).samples[0]
    assert (sample.late_s, sample.ttft_s) == (0.25, 0.75)


@given(
    st.lists(
        st.lists(st.floats(0, 100), min_size=0, max_size=20).map(sorted), min_size=1, max_size=5
    ),
    st.floats(0, 100),
    st.floats(0, 100),
)
def test_tokens_of_neighbouring_windows_add_up(streams, a, b):
    flights = tuple(flight(str(n), 0.0, times) for n, times in enumerate(streams))
    first, last = sorted((a, b))
    parts = [(-1.0, first), (first, last), (last, 101.0)]
    tokens = [Window(0.0, *part, flights).tokens for part in parts]
    assert sum(tokens) == sum(len(times) for times in streams)
    assert min(tokens) >= 0


def test_a_window_closes_with_the_whole_burst_of_its_last_forward():
    # Forwards end at 1, 2, 3 and 4; the streams are written 0.01 apart.
    streams = [flight(str(n), 0.0, [t + n / 100 for t in (1, 2, 3, 4)]) for n in range(5)]
    closed = end_of_burst(streams, 3.0)
    assert closed == 3.04
    assert Window(0.0, 0.0, closed, tuple(streams)).tokens == 15
    assert end_of_burst(streams, 4.04) == 4.04
    # Where a pause stretches most gaps, the short ones tell how far apart forwards are.
    paused = [flight(str(n), 0.0, [n / 100 + t for t in (1, 6, 11, 11.5)]) for n in range(5)]
    assert end_of_burst(paused, 11.0) == 11.04
    assert end_of_burst([flight("a", 0.0, [1.0])], 1.5) == 1.5


class TestClosedPlan:
    def test_all_lanes_start_at_once(self):
        assert closed_plan(4).offsets == (0.0, 0.0, 0.0, 0.0)
        assert closed_plan(4).ramp == 0

    def test_each_lane_begins_with_a_request_of_the_ramp(self):
        assert closed_plan(4, ramp=True).ramp == 4


class TestOpening:
    """When a closed loop's window opens: with its lanes, or once most cut answers have ended."""

    def test_without_a_ramp_it_opens_with_the_first_request(self):
        flights = [flight("a", 0.2, [1.0, 2.0]), flight("b", 0.1, [1.0, 2.0])]
        window = window_of(closed_plan(2), flights, [LoopReport(2.0, 0.1)])
        assert (window.opened, window.ramp) == (0.1, ())
        assert window.flights == tuple(flights)
        assert window.counted() == flights

    @pytest.mark.parametrize(
        ("lanes", "opened"), [(2, 2.0), (3, 3.0), (4, 3.0), (8, 6.0), (9, 7.0), (32, 24.0)]
    )
    def test_it_opens_when_three_quarters_of_the_lanes_have_ended_their_cut_answer(
        self, lanes, opened
    ):
        ramp = [flight(f"ramp/{n}", 0.0, [n + 1.0]) for n in range(lanes)]
        flights = [flight(f"chat/{n}", n + 1.0, [n + 1.5, n + 1.6]) for n in range(lanes)]
        window = window_of(closed_plan(lanes, ramp=True), [*ramp, *flights], [LoopReport(50, 0.1)])
        assert window.opened == opened
        assert (window.ramp, window.flights) == (tuple(ramp), tuple(flights))

    def test_it_opens_after_the_whole_forward(self):
        # Two lanes; forwards end at 1, 2, 3, ...; streams are written 0.01 s apart.
        ramp = [flight("r0", 0.0, [1.0]), flight("r1", 0.0, [1.01, 2.01])]
        flights = [
            flight("a", 1.0, [2.0, 3.0, 4.0, 5.0]),
            flight("b", 2.01, [3.01, 4.01, 5.01]),
            flight("c", 2.02, [2.02, 3.02, 4.02]),
        ]
        window = window_of(closed_plan(2, ramp=True), [*ramp, *flights], [LoopReport(4.0, 0.1)])
        assert (window.opened, window.closed) == (2.02, 4.02)
        # Two forwards of three streams.
        assert window.tokens == 6

    def test_tokens_of_the_ramp_count_inside_the_window(self):
        ramp = (flight("r", 0.0, [1.0, 2.0, 3.0]),)
        window = Window(0.0, 1.5, 12.0, LANES, ramp=ramp)
        without = dataclasses.replace(window, ramp=())
        assert window.tokens == without.tokens + 2
        assert window.counted() == without.counted()
        assert [sample.prompt for sample in measured(window).samples] == list("abcdef")


class TestWholeRun:
    """The figures from the first send to the last token."""

    # Two lanes start at 0; the first one has no more work at 9, the last token arrives at 13.
    FLIGHTS = (
        flight("a", 0.0, [1.0, 2.0, 3.0, 4.0]),
        flight("b", 0.1, [1.0, 3.0, 5.0]),
        flight("c", 4.0, [5.0, 7.0, 9.0]),
        flight("d", 5.0, [7.0, 9.0, 11.0, 13.0]),
    )
    BURST = Window(1000.0, 0.0, 9.0, FLIGHTS)

    def test_all_tokens_count_over_the_time_to_the_last_one(self):
        assert measured(self.BURST).output_tok_s == pytest.approx(12 / 9)
        whole = measured(self.BURST, whole_run=True)
        assert (whole.output_tokens, whole.window_s) == (14, 13.0)
        assert whole.output_tok_s == pytest.approx(14 / 13)
        assert whole.request_s == pytest.approx(4 / 13)

    def test_latencies_are_of_all_requests(self):
        ttft = [1.0, 0.9, 1.0, 2.0]
        tpot = [1.0, 2.0, 2.0, 2.0]
        assert measured(self.BURST).ttft_p99_ms < 1001  # without d, which ends in the drain
        whole = measured(self.BURST, whole_run=True)
        assert whole.ttft_p50_ms == pytest.approx(1000 * statistics.median(ttft))
        assert whole.ttft_p99_ms > 1900
        assert whole.tpot_p50_ms == pytest.approx(1000 * statistics.median(tpot))
        assert whole.user_tok_s == pytest.approx(statistics.fmean(1 / pace for pace in tpot))

    def test_it_begins_with_the_first_request(self):
        late = dataclasses.replace(self.BURST, started_at=1000.5, opened=0.5).whole_run()
        assert (late.opened, late.started_at) == (0.0, 1000.0)
        assert measured(late).samples[0].sent_s == 0

    def test_the_drain_is_not_checked_for_a_steady_load(self):
        # With fewer requests in flight the server takes a third of the time for a token.
        steady = [flight(f"s{n}", 0.0, [k / 2 for k in range(1, 201)]) for n in range(11)]
        drain = flight("d", 0.0, [k / 2 for k in range(1, 201)] + [100 + k / 6 for k in range(200)])
        window = Window(0.0, 0.0, 100.0, (*steady, drain))
        found = measured(window, point=OperatingPoint(12), whole_run=True)
        assert found.window_s == pytest.approx(100 + 199 / 6)
        assert "unsteady" not in codes_of(found)
        whole = window.whole_run()
        assert "unsteady" in codes_of(measured(whole, point=OperatingPoint(12)))

    def test_the_rate_of_arrivals_leaves_out_the_drain(self):
        arrivals = [flight(f"a{n}", float(n), [n + 5.0, n + 6.0]) for n in range(11)]
        for each in arrivals:
            each.due = each.sent
        window = Window(0.0, 0.0, 10.0, tuple(arrivals))
        whole = measured(window, point=OperatingPoint(request_rate=1.0), whole_run=True)
        assert whole.offered_request_s == pytest.approx(1.0)
        assert whole.request_s == pytest.approx(11 / 16)


class TestLockStepOfABurst:
    """A burst begins together on purpose; answers that also end together are in lock-step."""

    @staticmethod
    def burst(lives):
        """A window of 8 lanes; `lives` gives the seconds that each request of a lane takes."""
        flights = []
        for lane in range(8):
            now = 0.0
            for n in range(5):
                life = lives(lane, n)
                times = [now + life * (k + 1) / 10 for k in range(10)]
                flights.append(flight(f"{lane}/{n}", now, times))
                now += life
        ends = [max(f.last for f in flights if f.prompt.startswith(f"{k}/")) for k in range(8)]
        return Window(0.0, 0.0, min(ends), tuple(sorted(flights, key=lambda f: f.sent)))

    def lock_steps(self, lives):
        return "lock_step" in codes_of(measured(self.burst(lives), point=OperatingPoint(8)))

    def test_the_first_wave_is_no_lock_step(self):
        assert not self.lock_steps(lambda lane, n: 20 + 7.3 * ((3 * lane + 5 * n) % 8) + n)

    def test_equal_answers_are(self):
        assert self.lock_steps(lambda _lane, _n: 40)


def codes_of(measurement):
    return [reason.split(":")[0] for reason in measurement.invalid]


def generator(server, point, *, options=None, **more):
    settings = {"output_tokens": 8, "warmup_requests": 0, **more}
    load = Workload(prompts=(("chat", 1.0),), points=(point,), **settings)
    options = {"processes": 1, **(options or {})}
    return LoadGenerator(server.url, load, BuiltInPrompts(load.prompts), **options)


def asked(body):
    return body["sampling_params"]["max_new_tokens"]


def requests_of(server):
    """Prompt and tokens asked for of each request, in the order of arrival."""
    return [(body["text"], asked(body)) for body in server.bodies("/generate")]


def test_at_concurrency_1_everything_counts(server, answer):
    server.generate = lambda _n, _b: answer(8, wait_s=0.002)
    point = OperatingPoint(1, requests=6)
    measurement = generator(server, point).measure(point, speculation=NONE)
    assert measurement.output_tokens == 48
    assert measurement.request_s == pytest.approx(6 / measurement.window_s)
    assert measurement.samples[0].sent_s >= 0
    longest = max(sample.e2e_s for sample in measurement.samples)
    assert measurement.e2e_p99_ms <= 1000 * longest


def test_the_ramp_is_no_part_of_the_window(server, answer):
    server.generate = lambda _n, body: answer(asked(body), wait_s=0.03)
    point = OperatingPoint(4, requests=16)
    load = {"warmup_requests": 1}
    measurement = generator(server, point, **load).measure(point, speculation=NONE)
    assert codes(measurement) == []
    assert server.most_in_flight == 4
    # Each lane sends another request first, with an answer cut short.
    first, counted = requests_of(server)[-20:-16], requests_of(server)[-16:]
    assert [tokens for _, tokens in first] == [1, 3, 5, 7]
    assert [tokens for _, tokens in counted] == [8] * 16
    assert not {text for text, _ in first} & {text for text, _ in counted}
    assert (measurement.requests, len(measurement.samples)) == (16, 16)
    # Three of four lanes have begun a counted request when the window opens.
    assert sum(sample.sent_s < 0 for sample in measurement.samples) in {2, 3}
    assert measurement.output_tokens < 16 * 8


class Watched(WindowWatch):
    def __init__(self, server, reasons=()):
        self.server, self.reasons, self.seen = server, reasons, []

    def begin(self):
        self.seen.append(("begin", list(self.server.paths())))

    def end(self):
        self.seen.append(("end", list(self.server.paths())))
        return self.reasons


def test_watches_see_the_whole_load_and_their_reasons_are_kept(server):
    point = OperatingPoint(2, requests=6)
    watches = [Watched(server), Watched(server, ("jit: compiled in the window",))]
    load = generator(server, point, options={"watches": watches}, warmup_requests=1)
    measurement = load.measure(point, speculation=NONE)
    assert codes(measurement) == ["jit"]
    for watch in watches:
        (begin, before), (end, after) = watch.seen
        assert (begin, end) == ("begin", "end")
        assert before[-1] == "/flush_cache"
        assert after[len(before) :] == ["/generate"] * (2 + 6)


class TestTimeOuts:
    def test_a_request_that_times_out_is_a_failed_sample(self, server, answer):
        hangs = (200, [*answer(8)[1][:3], "hang"])
        server.generate = lambda n, body: hangs if n == 5 else answer(asked(body))
        point = OperatingPoint(2, requests=8)
        options = {"request_timeout_s": 1.0}
        measurement = generator(server, point, options=options).measure(point, speculation=NONE)
        assert (measurement.requests, measurement.failed_requests) == (7, 1)
        (error,) = {sample.error for sample in measurement.samples} - {None}
        assert "timed out: 3 tokens" in error
        assert measurement.invalid
        # The window went on, and the server is brought to rest before it is handed back.
        assert server.paths().count("/generate") == 2 + 8
        assert server.paths()[-2:] == ["/abort_request", "/flush_cache"]

    def test_the_workloads_own_limit_goes_before(self, server, answer):
        hangs = (200, [*answer(8)[1][:3], "hang"])
        server.generate = lambda n, _b: hangs if n == 0 else answer(8)
        point = OperatingPoint(1, requests=2)
        load = generator(server, point, request_timeout_s=0.5)
        assert load.measure(point, speculation=NONE).failed_requests == 1

    def test_when_everything_times_out_the_server_hangs(self, server, answer):
        server.generate = lambda _n, _b: (200, [*answer(8)[1][:3], "hang"])
        point = OperatingPoint(2, requests=4)
        with pytest.raises(RunnerError, match=r"all 6 requests timed out after 0\.3 s") as caught:
            generator(server, point, options={"request_timeout_s": 0.3}).measure(
                point, speculation=NONE
            )
        assert (caught.value.failure.kind, caught.value.failure.fault) == (
            "stall",
            "configuration",
        )
        assert server.paths()[-1] == "/abort_request"

    def test_requests_given_up_one_by_one_are_no_sign_of_life(self, server):
        server.generate = lambda _n, _b: (200, ["hang"])
        point = OperatingPoint(1, requests=100)
        options = {"request_timeout_s": 0.2, "stall_timeout_s": 0.7}
        with pytest.raises(RunnerError, match=r"no token from any request for 0\.7 s") as caught:
            generator(server, point, options=options).measure(point, speculation=NONE)
        assert caught.value.failure.kind == "stall"
        assert server.paths().count("/generate") < 20


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100))
def test_percentiles_lie_between_the_extremes(values, percent):
    slack = 1e-6
    assert min(values) - slack <= percentile(values, percent) <= max(values) + slack


def test_percentiles_interpolate():
    values = [4.0, 1.0, 3.0, 2.0]
    assert percentile(values, 50) == 2.5
    assert percentile(values, 95) == pytest.approx(3.85)
    assert percentile(values, 0) == 1.0
    assert percentile(values, 100) == 4.0
    assert percentile([7.0], 95) == 7.0
    assert math.isnan(percentile([], 95))
