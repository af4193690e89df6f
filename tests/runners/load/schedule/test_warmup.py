"""Warm-up until steady; and that it costs little where nothing is left to warm."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.base import RunnerError
from runners.load.generator import LoadGenerator
from runners.load.http.endpoint import Answer
from runners.load.http.in_flight import InFlightRequest
from runners.load.prompts.prompts import BuiltInPrompts, Prompt
from runners.load.schedule.loops import LoopReport
from runners.load.schedule.warmup import WarmupResult, check, result_of, with_nonces
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

NONE = Speculation()
CHAIN = Speculation("EAGLE3", 2, 1, 3)
ONE = OperatingPoint(1)


def flown(flight, pace, *, tokens=5, verify_calls=0, sent=10.0, ttft=0.5):
    """A flight as it is after a pass: one token a chunk, `pace` seconds apart."""
    flight.sent = sent
    for n in range(tokens):
        flight.chunk_times.append(sent + ttft + n * pace)
        flight.chunk_tokens.append(n + 1)
    flight.answer = Answer(completion_tokens=tokens, verify_calls=verify_calls)
    return flight


class PacedDriver:
    """Stands in for a server whose pace is scripted, pass by pass."""

    def __init__(self, paces):
        self.paces = list(paces)
        self.passes = []

    async def run(self, plan, flights):
        self.passes.append((plan, [flight.prompt for flight in flights], flights[0].body))
        pace = self.paces.pop(0)
        for flight in flights:
            flown(flight, pace)
        return LoopReport(1.0, 0.25)


def warm_up(generator, paces, point=ONE, speculation=NONE):
    driver = PacedDriver(paces)
    load = generator._workload
    prompts = BuiltInPrompts(load.prompts).select(load.warmup_at(point), 0)
    warm = asyncio.run(generator._warm_up(driver, prompts, point, speculation))
    return driver, warm


@pytest.fixture
def generator():
    load = Workload((("chat", 1.0),), 256, (ONE,), warmup_requests=2)
    return LoadGenerator("http://127.0.0.1:1", load, BuiltInPrompts(load.prompts))


@pytest.mark.parametrize(
    ("paces", "passes"),
    [
        ([0.010, 0.0101], 2),
        ([0.020, 0.012, 0.010, 0.0098], 4),
        ([0.020, 0.010, 0.010], 3),
        ([0.04, 0.03, 0.02, 0.01], 4),  # it does not go on for ever
        ([0.010, 0.0104], 2),
        ([0.010, 0.0106, 0.0107], 3),
    ],
)
def test_passes_until_two_agree(generator, paces, passes):
    driver, warm = warm_up(generator, [*paces, 0.5])
    assert len(driver.passes) == passes
    assert warm.pace_s == pytest.approx(paces[passes - 1])
    assert warm.request_s == pytest.approx(0.5 + 255 * warm.pace_s)
    assert warm.cpu_share == 0.25


def test_what_was_seen_steady_takes_one_pass_more(generator):
    warm_up(generator, [0.02, 0.01, 0.01])
    assert len(warm_up(generator, [0.0102])[0].passes) == 1
    # Not so where it is not what it was, or somewhere else.
    assert len(warm_up(generator, [0.02, 0.02])[0].passes) == 2
    assert len(warm_up(generator, [0.01, 0.01], OperatingPoint(4))[0].passes) == 2
    assert len(warm_up(generator, [0.01, 0.01], speculation=CHAIN)[0].passes) == 2


def test_passes_are_short_and_send_the_same_prompts_with_other_nonces(generator):
    driver, _ = warm_up(generator, [0.01, 0.01], OperatingPoint(3))
    (plan, first, body), (_, second, other_body) = driver.passes
    assert len(plan.offsets) == 3
    assert len(set(first)) == 6
    assert first == second
    assert body != other_body
    assert b'"max_new_tokens":64' in body


def test_a_nonce_changes_a_text_at_its_beginning():
    (one,), (other,) = (with_nonces([Prompt("a", "Why?")]) for _ in range(2))
    assert one.text != other.text
    assert one.text.endswith("Why?")
    assert (one.id, one.input_ids, one.messages) == ("a", None, None)


def test_a_nonce_changes_the_first_message_of_a_chat():
    turns = (("system", "Be brief."), ("user", "Why?"))
    (one,), (other,) = (with_nonces([Prompt("a", messages=turns)]) for _ in range(2))
    assert one.messages[1] == turns[1]
    assert one.messages[0][0] == "system"
    assert one.messages != other.messages
    assert one.messages[0][1] in one.text


@pytest.mark.parametrize("length", [1, 2, 5, 40])
def test_a_nonce_keeps_the_first_id_and_the_length(length):
    ids = tuple(range(100, 100 + length))
    found = {with_nonces([Prompt("a", input_ids=ids)])[0].input_ids for _ in range(40)}
    assert all(len(one) == length and one[0] == 100 and set(one) <= set(ids) for one in found)
    assert all(one[9:] == ids[9:] for one in found)
    assert len(found) > (30 if length > 4 else 0)


def test_nonces_follow_the_beginning_that_all_prompts_share():
    head = tuple(range(50))
    prompts = [Prompt(f"{n}", input_ids=(*head, *range(60 + n, 90))) for n in range(3)]
    found = with_nonces(prompts)
    assert all(one.input_ids[:50] == head for one in found)
    assert all(one != prompt for one, prompt in zip(found, prompts, strict=True))
    texts = with_nonces(
        [Prompt("a", "A long beginning. Why?"), Prompt("b", "A long beginning. No")]
    )
    assert all(prompt.text.startswith("A long beginning. ") for prompt in texts)
    mixed = with_nonces([Prompt("a", "Why?"), Prompt("b", input_ids=(1, 2, 3))])
    assert mixed[0].text.endswith("Why?")
    assert len(mixed[1].input_ids) == 3


def test_decoding_is_timed_without_the_prefills_between():
    flights = [
        flown(InFlightRequest(f"{n}", b""), 0.01, tokens=9, verify_calls=4) for n in range(10)
    ]
    for flight in flights:
        for later in range(6, 9):
            flight.chunk_times[later] += 5.0  # the prefill of another request
    warm = result_of(flights, 100, 0.0)
    assert warm.decode_s == pytest.approx(0.02)
    assert warm.pace_s > 1


def test_no_warmup_requests_no_warmup():
    load = Workload((("chat", 1.0),), 256, (ONE,), warmup_requests=0)
    generator = LoadGenerator("http://127.0.0.1:1", load, BuiltInPrompts(load.prompts))
    driver, warm = warm_up(generator, [])
    assert driver.passes == []
    assert (warm.pace_s, warm.request_s) == (None, None)


def test_speculation_is_timed_by_the_verify():
    few = flown(InFlightRequest("a", b""), 0.01, tokens=9, verify_calls=4)
    many = flown(InFlightRequest("b", b""), 0.01, tokens=9, verify_calls=8)
    assert result_of([few], 100, 0.0).pace_s == pytest.approx(0.02)
    assert result_of([many], 100, 0.0).pace_s == pytest.approx(0.01)
    assert result_of([few, many], 100, 0.0).pace_s == pytest.approx(0.16 / 12)
    assert result_of([few], 100, 0.0).request_s == pytest.approx(0.5 + 99 * 0.01)


def test_answers_of_one_token_show_no_pace():
    warm = result_of([flown(InFlightRequest("a", b""), 0.01, tokens=1)], 1, 0.5)
    assert (warm.pace_s, warm.request_s, warm.cpu_share) == (None, None, 0.5)
    assert not warm.agrees_with(0.1)
    assert not WarmupResult(pace_s=0.1).agrees_with(None)


@given(st.floats(1e-6, 10), st.floats(1e-6, 10))
def test_agreement_is_symmetric_and_within_5_percent(a, b):
    agree = WarmupResult(pace_s=a).agrees_with(b)
    assert agree == WarmupResult(pace_s=b).agrees_with(a)
    assert WarmupResult(pace_s=a).agrees_with(a)
    assert agree == (min(a, b) >= 0.95 * max(a, b)) or min(a, b) == pytest.approx(0.95 * max(a, b))


def test_one_late_request_does_not_stop_it_and_all_late_do():
    good = flown(InFlightRequest("a", b""), 0.01)
    late = InFlightRequest("b", b"", error="timed out: 0 tokens", timed_out=True)
    check([good, late], "http://server")
    with pytest.raises(RunnerError, match="1 of 1 warm-up requests failed at http://server") as e:
        check([late], "http://server")
    assert (e.value.failure.kind, e.value.failure.fault) == ("stall", "configuration")
    refused = InFlightRequest("c", b"", error="HTTP 500: boom")
    with pytest.raises(RunnerError, match="c: HTTP 500: boom") as e:
        check([good, late, refused], "http://server")
    assert e.value.failure.kind == "request_failed"


def test_the_window_follows_a_flush_with_other_prompts(server):
    load = Workload((("chat", 1.0),), 8, (ONE,), requests=5, warmup_requests=2)
    LoadGenerator(server.url, load, BuiltInPrompts(load.prompts), processes=1).measure(
        ONE, speculation=NONE
    )
    flushed = server.paths().index("/flush_cache")
    bodies = [body and body.get("text") for _, body in server.seen]
    before, after = bodies[:flushed], bodies[flushed + 1 :]
    assert len(before) == len(set(before))
    assert len(before) in {4, 6, 8}
    assert len(after) == len(set(after)) == 5
    assert not set(before) & set(after)


def test_answers_that_end_by_themselves_do_not_stretch_the_ramp():
    # A limit of 4096 tokens says nothing of how long a request will take.
    point = OperatingPoint(4)
    load = Workload((("chat", 1.0),), 4096, (point,), natural_length=True)
    generator = LoadGenerator("http://127.0.0.1:1", load, BuiltInPrompts(load.prompts))
    _, warm = warm_up(generator, [0.1, 0.1], point)
    assert warm.request_s == pytest.approx(0.5 + 63 * 0.1)
