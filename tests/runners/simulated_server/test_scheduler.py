"""Batches of the scheduler, without a clock and a server."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.simulated_server.engine.request import ABORT, make_request
from runners.simulated_server.engine.scheduler import Limits, Scheduler

numbers = itertools.count(1)


def ask(scheduler, prompt, limit=4, **more):
    """Queue a request; a number as a prompt means a fresh prompt of that length."""
    if isinstance(prompt, int):
        prompt = [next(numbers) + 1000 for _ in range(prompt)]
    request = make_request(f"r{next(numbers)}", prompt, limit, arrived=more.pop("arrived", 0.0))
    for key, value in more.items():
        setattr(request, key, value)
    scheduler.waiting.append(request)
    return request


def prefill(scheduler, **more):
    """Run the next prefill; return its tokens per request, and the complete requests."""
    batch = scheduler.next_prefill(**more)
    if batch is None:
        return None
    complete = scheduler.prefilled(batch)
    for request in complete:
        request.emit(1)
    return [tokens for _, tokens in batch.requests], complete


def finish(scheduler):
    """Decode all running requests to their ends."""
    for request in scheduler.running:
        request.emit(request.limit)
    return scheduler.retire()


def test_prompts_share_a_batch_until_its_chunk_is_full():
    scheduler = Scheduler(Limits(running=8, chunk=100))
    first, cut, last = (ask(scheduler, n) for n in (60, 130, 10))
    assert prefill(scheduler) == ([60, 40], [first])
    assert scheduler.chunked is cut
    assert scheduler.begun == 2
    # The cut request continues before the next decode, together with requests that fit.
    assert prefill(scheduler) == ([90, 10], [cut, last])
    assert prefill(scheduler) is None
    assert scheduler.running == [first, cut, last]


def test_a_prompt_of_several_chunks():
    scheduler = Scheduler(Limits(running=8, chunk=100))
    long = ask(scheduler, 250)
    assert [prefill(scheduler) for _ in range(4)] == [
        ([100], []),
        ([100], []),
        ([50], [long]),
        None,
    ]


def test_without_chunks_max_prefill_tokens_bounds_all_but_the_first():
    scheduler = Scheduler(Limits(running=8, chunk=None, prefill=100))
    ask(scheduler, 150)
    ask(scheduler, 60)
    ask(scheduler, 50)
    assert [prefill(scheduler)[0] for _ in range(3)] == [[150], [60], [50]]


def test_limit_of_running_requests():
    scheduler = Scheduler(Limits(running=2))
    requests = [ask(scheduler, 10) for _ in range(3)]
    assert prefill(scheduler) == ([10, 10], requests[:2])
    assert prefill(scheduler) is None
    assert finish(scheduler) == requests[:2]
    assert prefill(scheduler) == ([10], requests[2:])


def test_an_aborted_chunk_makes_room():
    scheduler = Scheduler(Limits(running=1, chunk=100))
    cut, other = ask(scheduler, 250), ask(scheduler, 10)
    prefill(scheduler)
    cut.end(ABORT)
    assert prefill(scheduler) == ([10], [other])
    finish(scheduler)
    assert not scheduler.busy
    assert scheduler.cache.held == 0


def test_later_arrivals_of_an_open_loop_wait():
    scheduler = Scheduler(Limits(running=8))
    ask(scheduler, 10, arrived=2.0, open_arrival=True)
    assert prefill(scheduler, until=1.0) is None
    assert prefill(scheduler, until=2.0) is not None


def test_the_cache_has_prompts_and_answers_without_the_last_token():
    scheduler = Scheduler(Limits(running=8))
    prompt = list(range(50))
    first = ask(scheduler, prompt, limit=5)
    together = ask(scheduler, prompt, limit=5)
    prefill(scheduler)
    assert (first.cached_tokens, together.cached_tokens) == (0, 0)  # one batch
    beside = ask(scheduler, prompt)
    prefill(scheduler)
    assert beside.cached_tokens == 49  # the first is still running
    finish(scheduler)
    turn = ask(scheduler, [*prompt, *first.answer.ids[:5], 7, 8])
    prefill(scheduler)
    assert turn.cached_tokens == 54  # the last of five tokens is not computed
    finish(scheduler)
    scheduler.flush()
    again = ask(scheduler, prompt)
    prefill(scheduler)
    assert again.cached_tokens == 0


def test_a_chunk_is_shared_before_its_prompt_is_complete():
    scheduler = Scheduler(Limits(running=8, chunk=100))
    prompt = list(range(150))
    ask(scheduler, prompt)
    prefill(scheduler)
    other = ask(scheduler, prompt[:120])
    prefill(scheduler)
    assert other.cached_tokens == 100


def test_no_cache():
    scheduler = Scheduler(Limits(running=8, prefix_cache=False))
    for _ in range(2):
        request = ask(scheduler, [1, 2, 3])
        prefill(scheduler)
        finish(scheduler)
        assert request.cached_tokens == 0
    assert scheduler.token_usage == 0.0


def test_a_full_kv_cache_evicts_what_is_old_and_makes_requests_wait():
    scheduler = Scheduler(Limits(running=8, kv=100))
    old = list(range(60))
    ask(scheduler, old, limit=10)
    prefill(scheduler)
    waiting = ask(scheduler, 40, limit=10)
    assert prefill(scheduler) is None  # 60 + 10 + 40 + 10 do not fit
    finish(scheduler)
    assert prefill(scheduler) == ([40], [waiting])
    finish(scheduler)
    again = ask(scheduler, old, limit=10)
    prefill(scheduler)
    assert again.cached_tokens < 59


def test_a_request_larger_than_the_cache_runs_alone():
    scheduler = Scheduler(Limits(running=8, kv=100))
    assert ask(scheduler, 300)
    assert prefill(scheduler) is not None


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ({}, Limits(4)),
        ({"chunked_prefill_size": -1, "max_prefill_tokens": 9}, Limits(4, None, 9)),
        (
            {"max_total_tokens": 50, "disable_radix_cache": True},
            Limits(4, kv=50, prefix_cache=False),
        ),
    ],
)
def test_limits_of_flags(values, limits):
    assert Limits.of(values, 4, 300_000) == limits


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=40), st.integers(1, 6)),
        min_size=1,
        max_size=15,
    ),
    st.integers(1, 4),
    st.sampled_from([None, 1, 7, 100]),
    st.integers(30, 300),
    st.booleans(),
)
def test_every_request_is_served_once_and_released(asked, running, chunk, kv, prefix_cache):
    scheduler = Scheduler(Limits(running, chunk, prefill=50, kv=kv, prefix_cache=prefix_cache))
    requests = [ask(scheduler, prompt, limit) for prompt, limit in asked]
    ended = []
    for _ in range(10_000):
        if not scheduler.busy:
            break
        batch = scheduler.next_prefill()
        if batch is None:
            assert scheduler.running
            for request in scheduler.running:
                request.emit(1)
        else:
            assert chunk is None or batch.new_tokens <= chunk
            for request in scheduler.prefilled(batch):
                assert request.computed_tokens == request.prompt_tokens
                request.emit(1)
        assert scheduler.begun <= running
        ended += scheduler.retire()
    assert sorted(r.rid for r in ended) == sorted(r.rid for r in requests)
    assert all(0 <= r.cached_tokens < r.prompt_tokens for r in requests)
    assert scheduler.cache.held == 0
    assert scheduler.cache.tokens <= kv
    assert scheduler.token_usage == 0.0
