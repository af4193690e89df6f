"""Every check of `docs/validity.md`, by the case that triggers it."""

from __future__ import annotations

import re
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.load.checks.evidence import INVALIDATING, WARNING
from runners.load.prompts.prompts import Prompt
from runners.load.schedule.pauses import ClientPauses, Pause
from runners.load.window.measurement import reasons_against, warnings_about
from runners.load.window.watches import WATCH_CODES
from search_spaces.workload import OperatingPoint, SharedPrefix

from ..windows import PLAIN, TOKENS, Load

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

TABLE = Path(__file__).parents[4] / "docs" / "validity.md"


def codes(found):
    return [reason.split(":", 1)[0] for reason in found]


def judged(load):
    evidence = load.evidence()
    return codes(reasons_against(evidence)), codes(warnings_about(evidence))


GOOD = [
    pytest.param(Load(), id="closed, EAGLE3"),
    pytest.param(Load(PLAIN), id="closed, no speculation"),
    pytest.param(Load(PLAIN, OperatingPoint(request_rate=2.0), gap=0.5), id="open"),
    pytest.param(Load(point=OperatingPoint(request_rate=2.0), gap=0.5), id="open, EAGLE3"),
]


@pytest.mark.parametrize("load", GOOD)
def test_a_good_window_has_no_reasons_and_no_warnings(load):
    assert judged(load) == ([], [])


# -- one case per code ---------------------------------------------------------------------------

CASES: dict[str, Callable[[], Load]] = {}
WARNED: dict[str, Callable[[], Load]] = {}


def case(into, code):
    def keep(make):
        into[code] = make
        return make

    return keep


def answering(load, **figures):
    """The first request answers so."""
    load.requests[0].answer |= figures
    return load


def merged(load):
    """The first answer arrives in one chunk, as a proxy may send it."""
    load.requests[0].one_piece = True
    return load


@case(CASES, "failed_requests")
def _failed():
    load = Load()
    load.requests[3].error = "HTTP 500: out of luck"
    return load


@case(CASES, "timed_out")
def _timed_out():
    load = Load(count=200)
    load.requests[3].error = "no end after 600 s"
    load.requests[3].timed_out = True
    return load


@case(CASES, "too_few_requests")
def _too_few():
    return Load(point=OperatingPoint(8), count=3)


@case(CASES, "empty_window")
def _empty():
    return Load(more={"window_tokens": 0})


@case(CASES, "completion_tokens")
def _lengths():
    load = Load()
    load.requests[0].tokens = TOKENS - 2
    return load


@case(CASES, "token_totals")
def _lost_tail():
    load = Load()
    load.requests[0].lose = 3
    return load


@case(CASES, "chunk_tokens")
def _claimed():
    load = Load(PLAIN)
    for request in load.requests:
        request.claim = TOKENS - 8
    return load


@case(CASES, "prompt_tokens")
def _prompt_cut():
    load = Load()
    load.prompts = [
        Prompt(request.prompt, input_ids=(n, 2, 3, 4, 5, 6, 7, 8, 9))
        for n, request in enumerate(load.requests)
    ]
    return answering(load, prompt_tokens=8)


@case(CASES, "cached_tokens")
def _cached():
    return answering(Load(), cached_tokens=7)


@case(CASES, "duplicate_prompts")
def _duplicates():
    load = Load()
    load.prompts = [
        Prompt(request.prompt, f"{min(n, 14)} or what?") for n, request in enumerate(load.requests)
    ]
    return load


@case(CASES, "too_fast")
def _replayed():
    # A verify took 50 ms in the warm-up; a cache sends the whole answer in 20 ms.
    load = Load(more={"decode_s": 0.05}, pace=lambda _now: 0.0005)
    for n, request in enumerate(load.requests):
        request.first, request.sent = 0.005, 0.01 * n
    return load


@case(CASES, "client_saturated")
def _saturated():
    return Load(more={"client_cpu_share": 0.97})


@case(CASES, "client_late")
def _late():
    load = Load(PLAIN, OperatingPoint(request_rate=2.0), gap=0.5)
    for request in load.requests:
        request.late = 0.4
    return load


@case(CASES, "lock_step")
def _lock_step():
    return Load(PLAIN, OperatingPoint(4), together=True)


@case(CASES, "client_paused")
def _paused():
    pauses = (Pause(2.0, 3.0, 0.0), Pause(5.0, 6.0, 0.0))
    return Load(more={"client_pauses": ClientPauses(pauses, seconds=20.0)})


@case(CASES, "unsteady")
def _unsteady():
    return Load(pace=lambda now: 0.05 if now < 10 else 0.1)


@case(CASES, "silent")
def _standstill():
    # From one answer's end to the next one's first token, so that no stream shows it.
    load = Load(PLAIN, OperatingPoint(1), count=8, gap=4.0)
    for request in load.requests[4:]:
        request.sent += 12.0
    load.requests[4].sent -= 12.0
    load.requests[4].first = 12.1
    return load


@case(CASES, "short_window")
def _short():
    load = Load(PLAIN, OperatingPoint(request_rate=10.0), gap=0.1, count=64)
    for request in load.requests:
        request.pace = lambda _now: 12.0 / TOKENS
    return load


@case(CASES, "queue_grows")
def _queue():
    load = Load(PLAIN, OperatingPoint(request_rate=4.0), gap=0.25, count=40)
    for n, request in enumerate(load.requests):
        # One is served after the other, in 0.5 s.
        request.pace = lambda _now, n=n: 0.5 * (n + 1) / TOKENS
    return load


@case(CASES, "acceptance_unexpected")
def _unexpected():
    return answering(Load(PLAIN), verify_calls=20, correct_drafts=44)


@case(CASES, "acceptance_missing")
def _missing():
    return answering(Load(), verify_calls=0, correct_drafts=0, histogram=())


@case(CASES, "accept_length")
def _impossible():
    # Four drafts in a verify of three.
    return answering(merged(Load()), verify_calls=15, correct_drafts=49, histogram=(0, 0, 0, 11, 4))


@case(CASES, "acceptance_counts")
def _counts():
    return answering(Load(), verify_calls=30, correct_drafts=34, histogram=(10, 10, 8, 3))


@case(CASES, "acceptance_stale")
def _stale():
    load = Load()
    for request in load.requests:
        request.accepted = [0, 1, 2, 1]
    return load


@case(WARNED, "low_acceptance")
def _never():
    load = Load()
    for request in load.requests:
        request.accepted = [0]
    return load


@case(WARNED, "perfect_acceptance")
def _always():
    load = Load()
    for request in load.requests:
        request.accepted = [3]
    return load


@case(WARNED, "few_requests")
def _few():
    return Load(point=OperatingPoint(1), count=4)


@case(WARNED, "some_failed")
def _some_failed():
    load = Load(count=200)
    load.requests[3].error = "HTTP 500: out of luck"
    return load


@case(WARNED, "client_busy")
def _busy():
    return Load(more={"client_cpu_share": 0.8})


@case(WARNED, "prefix_not_cached")
def _no_cache():
    load = Load(workload={"shared_prefix": SharedPrefix(500)})
    load.prompts = [
        Prompt(request.prompt, f"{'A long beginning. ' * 50}{n}")
        for n, request in enumerate(load.requests)
    ]
    return load


@case(WARNED, "retracted")
def _retracted():
    # Their prompts were cached when they were read again, which gave a token without a verify.
    load = Load()
    for request in load.requests[:2]:
        answer = request.flight().answer
        correct, histogram = answer.correct_drafts, list(answer.histogram)
        spare = correct + answer.verify_calls - (TOKENS - 1)
        k = next(k for k, n in enumerate(histogram) if n and k == spare)
        histogram[k] -= 1
        request.answer |= {
            "verify_calls": answer.verify_calls - 1,
            "correct_drafts": correct - k,
            "histogram": tuple(histogram),
            "retractions": 1,
            "cached_tokens": 9,
        }
    return load


@case(WARNED, "queued")
def _queued():
    return Load(point=OperatingPoint(8), more={"running_limit": 6})


@case(WARNED, "not_streamed")
def _whole():
    load = Load()
    for request in load.requests:
        request.one_piece = True
    return load


@case(WARNED, "drift")
def _drift():
    return Load(pace=lambda now: 0.05 if now < 10 else 0.0525)


@case(WARNED, "uneven")
def _uneven():
    load = Load(PLAIN, OperatingPoint(1))
    for request in load.requests[::5]:
        request.pace = lambda _now: 0.15
    return load


@case(WARNED, "stalled")
def _stalled():
    load = Load()
    load.requests[5].pause = 4.0
    return load


@case(WARNED, "client_delayed")
def _delayed():
    pauses = tuple(Pause(at / 5, at / 5 + 0.03, 0.0) for at in range(100))
    return Load(more={"client_pauses": ClientPauses(pauses, seconds=20.0)})


@case(WARNED, "degenerate_output")
def _garbage():
    load = Load()
    for request in load.requests:
        request.ids = (0,) * TOKENS
    return load


@pytest.mark.parametrize("code", CASES)
def test_each_case_is_invalid_for_its_code_alone(code):
    found, _ = judged(CASES[code]())
    assert found == [code]


@pytest.mark.parametrize("code", WARNED)
def test_each_case_has_its_warning_alone(code):
    assert judged(WARNED[code]()) == ([], [code])


def test_failed_requests_include_the_ramp():
    ramp = Load(point=OperatingPoint(1), count=2).requests
    ramp[0].error = "HTTP 500: out of luck"
    load = Load(more={"ramp": [request.flight() for request in ramp]})
    (reason,) = reasons_against(load.evidence())
    assert reason.startswith("failed_requests: 1 of 18 requests failed; chat/000: HTTP 500")


# -- the table -----------------------------------------------------------------------------------


def table(heading):
    section = TABLE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|$", section, re.MULTILINE)
    assert all(row.count(" | ") == 2 for _, row in rows)
    return [code for code, _ in rows]


def test_the_docs_list_all_reasons():
    assert sorted(table("Reasons")) == sorted({*INVALIDATING, *WATCH_CODES})
    assert sorted(CASES) == sorted(INVALIDATING)


def test_the_docs_list_all_warnings():
    assert sorted(table("Warnings")) == sorted(WARNING) == sorted(WARNED)


# -- rules ---------------------------------------------------------------------------------------


def test_findings_of_watches_come_first():
    evidence = CASES["cached_tokens"]().evidence()
    found = reasons_against(evidence, ("compiled: AUTOTUNE",))
    assert codes(found) == ["compiled", "cached_tokens"]


def test_completion_tokens_with_natural_length_has_only_an_upper_bound():
    load = Load(workload={"natural_length": True, "output_tokens": TOKENS + 10})
    assert judged(load)[0] == []
    load = Load(workload={"natural_length": True, "output_tokens": TOKENS - 1})
    assert judged(load)[0] == ["completion_tokens"]


def test_token_totals_requires_a_count():
    assert judged(answering(Load(PLAIN), completion_tokens=None))[0] == ["token_totals"]


def test_cached_tokens_allows_a_shared_prefix():
    load = WARNED["prefix_not_cached"]()
    for request in load.requests[1:]:
        request.answer["cached_tokens"] = 450
    assert judged(load) == ([], [])


def test_prefix_not_cached_needs_a_shared_group():
    load = WARNED["prefix_not_cached"]()
    load.workload["shared_prefix"] = SharedPrefix(500, groups=len(load.requests))
    assert judged(load) == ([], [])
    load.workload["shared_prefix"] = SharedPrefix(500, groups=len(load.requests) - 1)
    assert judged(load) == ([], ["prefix_not_cached"])


def test_accept_length_uses_the_largest_adaptive_steps():
    # Six drafts in a verify, where it runs three steps just now.
    figures = {"verify_calls": 10, "correct_drafts": 54, "histogram": (0, 0, 0, 0, 3, 0, 7)}
    load = answering(merged(Load()), **figures)
    assert judged(load)[0] == ["accept_length"]
    load = answering(merged(Load(more={"adaptive_steps": (1, 3, 7)})), **figures)
    assert judged(load)[0] == []


def test_acceptance_missing_allows_adaptive_steps_of_0():
    load = Load(more={"adaptive_steps": (0, 1, 3)})
    for request in load.requests[::2]:
        request.answer |= {"verify_calls": 0, "correct_drafts": 0, "histogram": ()}
    assert judged(load)[0] == []


@pytest.mark.parametrize(
    ("tokens", "turn_tokens", "found"),
    [(13, 0, []), (40, 0, ["prompt_tokens"]), (40, 30, []), (60, 30, ["prompt_tokens"])],
)
def test_prompt_tokens_of_a_text_are_bounded_by_its_bytes(tokens, turn_tokens, found):
    load = answering(Load(), prompt_tokens=tokens)
    load.prompts = [
        Prompt(request.prompt, f"{request.prompt[::-1]} why?", turn_tokens=turn_tokens)
        for request in load.requests
    ]
    assert judged(load)[0] == found


def test_token_totals_compares_ids_and_tokens():
    load = Load()
    load.requests[0].ids = tuple(range(TOKENS - 1))
    assert judged(load)[0] == ["token_totals"]


def test_chunk_tokens_allows_a_delayed_chunk():
    load = Load(PLAIN)
    for request in load.requests:
        request.claim, request.first = TOKENS - 8, 0.05 * (TOKENS - 8)
    assert judged(load)[0] == []


def test_chunk_tokens_allows_a_burst_after_a_pause():
    evidence = Load(PLAIN).evidence()
    for flight in evidence.flights:
        # It read nothing for 2.5 s, and then two pieces at once.
        held = flight.chunk_times[51]
        flight.chunk_times = array(
            "d", [*flight.chunk_times[:2], held, held, *flight.chunk_times[52:]]
        )
        flight.chunk_tokens = array("q", [1, 2, 20, 52, *flight.chunk_tokens[52:]])
    assert "chunk_tokens" not in codes(reasons_against(evidence))


@pytest.mark.parametrize(("share", "found"), [(2, []), (1, ["chunk_tokens"])])
def test_chunk_tokens_needs_most_answers(share, found):
    load = Load(PLAIN)
    for request in load.requests[::share]:
        request.claim = TOKENS - 8
    assert judged(load)[0] == found


def shifted(load):
    """The first answer's accounts with one verify less, and one correct draft more."""
    request = load.requests[0]
    answer = request.flight().answer
    verify, correct = answer.verify_calls - 1, answer.correct_drafts + 1
    return answering(load, verify_calls=verify, correct_drafts=correct, histogram=())


def test_acceptance_counts_limits_the_chunks():
    (reason,) = reasons_against(shifted(Load()).evidence())
    assert codes([reason]) == ["acceptance_counts"]
    assert "verify calls cannot give" in reason


def test_acceptance_counts_allows_a_chunk_per_retraction():
    load = answering(shifted(Load()), retractions=1)
    assert judged(load)[0] == []
    # OpenAI's endpoints do not tell of retractions.
    assert judged(answering(shifted(Load()), retractions=None))[0] == []


def test_acceptance_counts_allows_merged_chunks_and_adaptive_servers():
    assert judged(merged(shifted(Load())))[0] == []
    assert judged(shifted(Load(more={"adaptive_steps": (0, 1, 3)})))[0] == []


@pytest.mark.parametrize("accepted", [[0], [3]])
def test_acceptance_stale_allows_nothing_or_everything_accepted(accepted):
    load = Load()
    for request in load.requests:
        request.accepted = accepted
    assert judged(load)[0] == []


def test_equal_counts_of_different_lengths_are_acceptance_counts():
    load = Load()
    told = load.requests[0].flight().answer
    for n, request in enumerate(load.requests):
        request.tokens = TOKENS + 3 * (n - 8)
        request.answer |= {
            "verify_calls": told.verify_calls,
            "correct_drafts": told.correct_drafts,
            "histogram": told.histogram,
        }
    load.prompts = [
        Prompt(request.prompt, f"{request.prompt[::-1]} why?", output_tokens=request.tokens)
        for request in load.requests
    ]
    assert "acceptance_counts" in judged(load)[0]
    assert "completion_tokens" not in judged(load)[0]


@given(
    paces=st.lists(st.floats(0.02, 0.05), min_size=16, max_size=16),
    accepted=st.lists(
        st.lists(st.integers(0, 3), min_size=8, max_size=8), min_size=16, max_size=16
    ),
)
def test_unsteady_ignores_noise_of_acceptance(paces, accepted):
    """Whatever the drafts, a server whose verifies take one time is steady."""
    load = Load(pace=lambda _now: paces[0])
    for request, pattern in zip(load.requests, accepted, strict=True):
        request.accepted = pattern
    assert "unsteady" not in judged(load)[0]


def test_silent_ignores_long_prefills():
    load = Load(PLAIN, OperatingPoint(1), count=4, gap=20.0)
    for request in load.requests:
        request.first = 16.0
    assert "silent" not in judged(load)[0]
    for request in load.requests[:3]:
        request.first = 0.1
    assert "silent" in judged(load)[0]


def test_unsteady_ignores_a_pause_but_not_a_slower_server():
    load = Load()
    load.requests[3].pause = 20.0
    assert judged(load) == ([], ["stalled"])
    assert judged(CASES["unsteady"]()) == (["unsteady"], [])


def test_unsteady_ignores_adaptive_servers():
    load = CASES["unsteady"]()
    load.more = {"adaptive_steps": (0, 1, 3)}
    assert judged(load) == ([], [])


def test_stalled_accepts_a_window_without_length():
    load = WARNED["stalled"]()
    load.more = {"closed": 0.0}
    assert judged(load)[0] == ["empty_window"]


def test_queue_grows_ignores_the_ramp():
    # 160 requests in a window of 40 s, each of them answered in 24 s; those before it in 4 s.
    load = Load(PLAIN, OperatingPoint(request_rate=4.0), gap=0.25, count=221)
    for n, request in enumerate(load.requests):
        request.sent = (n - 60) * 0.25
        request.pace = lambda _now, n=n: (4.0 if n < 60 else 24.0) / TOKENS
    assert judged(load)[0] == []


@pytest.mark.parametrize(("faster", "found"), [(3.1, []), (4.5, []), (8.0, ["too_fast"])])
def test_too_fast_allows_a_slow_warmup(faster, found):
    load = Load(PLAIN, more={"decode_s": 0.05 * faster})
    for request in load.requests:
        request.first = 0.0
    assert judged(load)[0] == found


def test_too_fast_needs_a_tenth_of_the_answers():
    load = Load(PLAIN, more={"decode_s": 0.05})
    for request in load.requests[::4]:
        request.first, request.pace = 0.005, lambda _now: 0.0005
    assert judged(load)[0] == ["too_fast"]


def test_unsteady_needs_enough_requests():
    assert judged(Load(point=OperatingPoint(1), count=2, pace=lambda n: 0.05 + n))[0] == []


@pytest.mark.parametrize("rate", [0.5, 1.0, 1.9])
def test_queue_grows_accepts_a_stable_queue(rate):
    point = OperatingPoint(request_rate=rate)
    assert judged(Load(PLAIN, point, gap=1 / rate, count=40))[0] == []


def test_short_window_recommends_requests():
    load = CASES["short_window"]()
    (reason,) = reasons_against(load.evidence())
    assert "0 of the 64 requests that were sent in the window (6.3 s) ended in it" in reason
    count = int(re.search(r"raise `requests` to about (\d+), or lower the rate$", reason)[1])
    assert count > 300
    longer = Load(PLAIN, load.point, gap=0.1, count=count)
    for request in longer.requests:
        request.pace = load.requests[0].pace
    assert judged(longer)[0] == []


def test_short_window_recommends_a_longer_trace():
    load = CASES["short_window"]()
    load.point = OperatingPoint(trace="day.jsonl")
    (reason,) = reasons_against(load.evidence())
    assert reason.endswith("of a longer trace")


@pytest.mark.parametrize(
    ("load", "warned"),
    [
        (Load(point=OperatingPoint(8), more={"running_limit": 8}), False),
        (Load(point=OperatingPoint(8)), False),  # the server does not say
        # Each takes 2.1 s or more, one comes every 0.5 s: at least 4 are there at once.
        (Load(PLAIN, OperatingPoint(request_rate=2.0), gap=0.5, more={"running_limit": 3}), True),
        (Load(PLAIN, OperatingPoint(request_rate=2.0), gap=0.5, more={"running_limit": 16}), False),
        # Successors begin as their predecessors end: that is no queue.
        (Load(PLAIN, OperatingPoint(1), more={"running_limit": 1}), False),
    ],
)
def test_queued_compares_with_the_servers_limit(load, warned):
    assert ("queued" in judged(load)[1]) is warned


def test_client_late_allows_short_delays():
    load = Load(PLAIN, OperatingPoint(request_rate=100.0), gap=0.01, count=40)
    for request in load.requests:
        request.late = 0.008
    assert "client_late" not in judged(load)[0]


@pytest.mark.parametrize(
    ("equal", "warned"),
    [((28,), True), ((16,), True), ((15,), False), ((2,) * 8, True), ((3,), False)],
)
def test_degenerate_output_if_half_of_the_answers_are_equal(equal, warned):
    """Of 32 answers, groups of so many are equal."""
    load = Load(PLAIN, count=32)
    groups = [group for group, size in enumerate(equal) for _ in range(size)]
    for request, group in zip(load.requests, groups, strict=False):
        request.ids = tuple(range(100 * group, 100 * group + 16))
    assert ("degenerate_output" in judged(load)[1]) is warned


def test_degenerate_output_allows_three_equal_answers_of_six():
    load = Load(PLAIN, count=6)
    for request in load.requests[:3]:
        request.ids = tuple(range(16))
    assert "degenerate_output" not in judged(load)[1]


@pytest.mark.parametrize(("text", "warned"), [("!" * 40, True), ("Paris is a city.", False)])
def test_degenerate_output_reads_text_without_ids(text, warned):
    load = Load(PLAIN)
    for n, request in enumerate(load.requests):
        request.answer |= {"output_ids": (), "text": text if warned else f"{n} {text}"}
    assert (judged(load)[1] == ["degenerate_output"]) is warned


def test_too_fast_includes_short_answers():
    load = Load(PLAIN, more={"decode_s": 0.05})
    for request in load.requests:
        request.tokens, request.first, request.pace = 5, 0.002, lambda _now: 0.0005
    assert "too_fast" in judged(load)[0]


def test_too_few_requests_if_all_latencies_are_of_the_drain():
    assert judged(Load(PLAIN, OperatingPoint(8), count=16, more={"whole_lives": 0}))[0] == [
        "too_few_requests"
    ]


@pytest.mark.parametrize(
    "ids",
    [
        lambda n, k: n + 100 if k == 0 else 0,
        lambda _n, k: k if k < 5 else 0,
        lambda n, k: n + k % 2,
        lambda _n, k: k,
    ],
    ids=["one token after the prefill's", "one token in the end", "two tokens", "one answer"],
)
def test_degenerate_output_finds_loops_of_any_period(ids):
    load = Load(PLAIN)
    for n, request in enumerate(load.requests):
        request.ids = tuple(ids(n, k) for k in range(TOKENS))
    assert [code for code in judged(load)[1] if code == "degenerate_output"]


def test_degenerate_output_finds_one_answer_of_many_lengths():
    load = Load(PLAIN)
    for n, request in enumerate(load.requests):
        request.tokens = TOKENS - n
        request.ids = tuple(range(TOKENS - n))
    assert "degenerate_output" in judged(load)[1]


def test_lock_step_skips_answers_of_few_chunks():
    load = Load(PLAIN, OperatingPoint(4), together=True)
    for request in load.requests:
        request.tokens = 5
    assert "lock_step" not in judged(load)[0]
