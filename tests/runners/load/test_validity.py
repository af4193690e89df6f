"""Every check of `docs/validity.md`, by the case that triggers it."""

from __future__ import annotations

import re
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.records import BatchCycles, CycleTimes, PartTime
from runners.load.checks.pauses import ClientPauses, Pause
from runners.load.checks.validity import CHECKS, reasons_against
from runners.load.checks.warnings import WARNINGS, warnings_about
from runners.load.prompts.prompts import Prompt
from runners.load.window.watches import WATCH_CODES, LogWatch, ServerIdentityWatch, compile_lines
from runners.plugin.cycle_times import PluginWatch, slower_than_clock
from search_spaces.configuration import Setting
from search_spaces.workload import OperatingPoint, SharedPrefix

from .windows import PLAIN, TOKENS, Load

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

TABLE = Path(__file__).parents[3] / "docs" / "validity.md"


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
def test_a_good_window_is_believed_without_a_word(load):
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
def test_the_case_is_not_believed_and_nothing_else_is_said(code):
    found, _ = judged(CASES[code]())
    assert found == [code]


@pytest.mark.parametrize("code", WARNED)
def test_the_case_is_believed_with_a_warning(code):
    assert judged(WARNED[code]()) == ([], [code])


def test_a_failed_request_of_the_ramp_counts_as_one():
    ramp = Load(point=OperatingPoint(1), count=2).requests
    ramp[0].error = "HTTP 500: out of luck"
    load = Load(more={"ramp": [request.flight() for request in ramp]})
    (reason,) = reasons_against(load.evidence())
    assert reason.startswith("failed_requests: 1 of 18 requests failed; chat/000: HTTP 500")


# -- watches -------------------------------------------------------------------------------------

WATCHED: dict[str, str] = {}


def watched(code):
    def keep(test):
        WATCHED[code] = test.__name__
        return test

    return keep


# Lines of real logs and of the sources that print them; see `runners.load.window.watches`.
COMPILING = [
    "AUTOTUNE mm(64x4096, 4096x4096)",
    "Triton autotuning for function _fwd_kernel,",
    "[2026-11-29 18:59:55 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time",
    "[2026-11-29 18:59:55] Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=1, K=2",
    "[2026-11-29 18:59:55] Running FlashInfer autotune with cache: /cache/x.json",
    "2026-11-29 18:59:55,1 - INFO - [Autotuner]: Autotuning process starts ...",
    "2026-11-29 18:59:55,1 - INFO - flashinfer.jit: Loading JIT ops: batch_decode",
    "[2026-11-29 18:59:55] Capture target verify CUDA graph begin. backend=full, bs=[1, 2, 4]",
    "[2026-11-29 18:59:55] Capture draft extend CUDA graph begin. step=1, bs=[1]",
    "[2026-11-29 18:59:55] Capture cpu graph bs [1, 2]",
    "Capturing batches (bs=4 avail_mem=70.78 GB):  33%|###       | 1/3 [00:00<00:01]",
    "[2026-11-29 18:59:55] Compiling a graph for dynamic shape takes 3.10 s",
    "[1/2] /usr/local/cuda/bin/nvcc --generate-dependencies -o k.o",
]
QUIET = [
    "[2026-11-29 18:59:55] server_args=ServerArgs(cuda_graph_config='Capture cuda graph', x=1)",
    "[2026-11-29 18:59:55] Decode batch, #running-req: 1, accept len: 1.72, cuda graph: True",
    "[2026-11-29 18:59:55] Prefill batch, #new-seq: 1, #new-token: 12, #cached-token: 0",
    '[2026-11-29 18:59:55] INFO:     127.0.0.1:4 - "POST /generate HTTP/1.1" 200 OK',
    "[2026-11-29 18:59:55] Cache flushed successfully!",
    "[2026-11-29 18:59:55] KV cache pool is full. Retract requests. #retracted_reqs: 1",
]


@pytest.mark.parametrize("line", COMPILING)
def test_lines_of_compiling_are_recognised(line):
    assert compile_lines(f"{QUIET[1]}\n{line}\n{QUIET[2]}\n") == [line]


def test_everything_else_is_not_compiling(bodies):
    assert compile_lines("\n".join(QUIET)) == []


@watched("compiled")
def test_compiling_inside_the_window_is_seen_and_before_it_is_not(tmp_path):
    log = tmp_path / "server.log"
    watch = LogWatch(log)
    watch.begin()  # there is no log yet
    assert watch.end() == ()
    log.write_text(COMPILING[0] + "\n")
    watch.begin()
    with log.open("a") as out:
        out.write("\n".join(QUIET) + "\n")
    assert watch.end() == ()
    with log.open("a") as out:
        out.write(COMPILING[7] + "\n")
    (reason,) = watch.end()
    assert codes([reason]) == ["compiled"]
    assert "Capture target verify CUDA graph begin" in reason
    watch.begin()
    assert watch.end() == ()


FACTS = {"model_path": "target", "version": "0.5.23", "random_seed": 7, "startup_time": {"a": 1.5}}


def test_the_same_server_is_no_reason(server):
    server.server_info = FACTS | {"internal_states": [{"avg_spec_accept_length": 2.0}]}
    watch = ServerIdentityWatch(server.url, launched=FACTS)
    watch.begin()
    server.server_info = FACTS | {"internal_states": [{"avg_spec_accept_length": 2.5}]}
    assert watch.end() == ()


@watched("server_restarted")
@pytest.mark.parametrize(
    "change", [{"random_seed": 8}, {"startup_time": {"a": 1.6}}, {"version": "0.5.24"}]
)
def test_another_start_of_it_is_seen(server, change):
    server.server_info = FACTS
    watch = ServerIdentityWatch(server.url)
    watch.begin()
    server.server_info = FACTS | change
    assert codes(watch.end()) == ["server_restarted"]


@watched("server_not_ours")
def test_a_server_that_was_not_launched_is_seen(server):
    server.server_info = FACTS
    watch = ServerIdentityWatch(server.url, launched=FACTS | {"random_seed": 1})
    watch.begin()
    (reason,) = watch.end()
    assert codes([reason]) == ["server_not_ours"]
    assert "random_seed was 1 and is 7" in reason


def simulated(behind_s, busy_s, scale=4.0):
    clock = {"busy_s": busy_s, "behind_s": behind_s}
    return FACTS | {"simulated": {"time_scale": scale, "clock": clock}}


@watched("simulation_behind")
@pytest.mark.parametrize(
    ("behind_s", "busy_s", "believed"),
    [
        (1.1, 10.0, False),
        (0.9, 10.0, True),
        (0.3, 1.0, True),  # 0.075 real seconds: a debt that may yet be paid back
        (0.5, 1.0, False),
    ],
)
def test_a_simulated_server_that_fell_behind_its_clock_is_seen(server, behind_s, busy_s, believed):
    server.server_info = simulated(99.0, 100.0)  # what was before the flush does not count
    watch = ServerIdentityWatch(server.url)
    watch.begin()
    server.server_info = simulated(behind_s, busy_s)
    assert codes(watch.end()) == ([] if believed else ["simulation_behind"])


@watched("server_unreadable")
def test_a_server_that_does_not_say_who_it_is_is_not_believed(server):
    server.server_info = FACTS
    watch = ServerIdentityWatch(server.url, timeout_s=0.5)
    watch.begin()
    server.server_info = "hang"
    assert codes(watch.end()) == ["server_unreadable"]


def paced(tok_s, clock_ms, **changes):
    """Answers of 101 tokens at `tok_s`, and a clock whose cycles take `clock_ms`."""
    load = Load(PLAIN, OperatingPoint(1), pace=lambda _now: 1 / tok_s)
    for request in load.requests:
        request.tokens = 101
    seconds = clock_ms / 1000
    cycle = PartTime(1600, 1600 * seconds, seconds)
    values = {
        "point": load.point,
        "samples": tuple(load.evidence().samples),
        "cycle": CycleTimes("plugin", (BatchCycles(1, cycle, {}),)),
    }
    return SimpleNamespace(**(values | changes))


@watched("slower_than_clock")
@pytest.mark.parametrize(
    ("measurement", "scale", "believed"),
    [
        (paced(68.4, 14.5), 1.0, True),
        (paced(51.5, 14.5), 1.0, False),
        (paced(51.5, 14.5), 40.0, True),  # 12 ms of real time per answer: a busy client
        (paced(51.5, 14.5, point=OperatingPoint(8)), 1.0, True),  # the prefills of others
        (paced(51.5, 14.5, cycle=None), 1.0, True),
    ],
)
def test_streams_that_are_slower_than_the_servers_clock_are_seen(measurement, scale, believed):
    reason = slower_than_clock(measurement, scale)
    assert codes([] if reason is None else [reason]) == ([] if believed else ["slower_than_clock"])


def test_an_accepted_draft_costs_no_cycle():
    load = Load(point=OperatingPoint(1), pace=lambda _now: 0.015)
    samples = tuple(load.evidence().samples)
    assert slower_than_clock(paced(68.4, 14.5, samples=samples), 1.0) is None
    assert slower_than_clock(paced(68.4, 10.0, samples=samples), 1.0) is not None


def switched(in_force, switches):
    in_force = Setting.read(str(in_force))
    hot = {
        "steps": [1, 2, 5],
        "in_force": in_force.num_steps,
        "in_force_draft_tokens": in_force.num_draft_tokens,
        "switches": switches,
    }
    plugin = {"protocol": 1, "plugin": "1", "hot_switch": hot, "clock": None}
    return FACTS | {"internal_states": [{"tuner_plugin": plugin}]}


@watched("setting_not_in_force")
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (switched(2, 3), switched(2, 3), None),
        (switched(2, 3), switched(5, 4), "2 were in force before the window, and 5 after"),
        (switched(5, 3), switched(5, 3), "5 were in force before"),
        (switched("2/6", 3), switched("2/6", 3), "2/6 were in force before the window"),
        (switched(2, 3), switched(2, 5), "switched 2 times inside the window"),
        (switched(2, 3), FACTS, "does not say what is in force"),
    ],
)
def test_a_setting_that_was_not_in_force_is_seen(server, before, after, said):
    server.server_info = before
    watch = PluginWatch(server.url, lambda: Setting(2), time_scale=1.0)
    watch.begin()
    server.server_info = after
    reasons = watch.end()
    assert codes(reasons) == ([] if said is None else ["setting_not_in_force"])
    assert (said or "") in "".join(reasons)


def test_of_a_server_that_is_not_switched_nothing_is_asked(server):
    server.server_info = switched(2, 3)
    watch = PluginWatch(server.url, lambda: None, time_scale=1.0)
    watch.begin()
    server.server_info = FACTS
    assert watch.end() == ()


# -- the table -----------------------------------------------------------------------------------


def table(heading):
    section = TABLE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|$", section, re.MULTILINE)
    assert all(row.count(" | ") == 2 for _, row in rows)
    return [code for code, _ in rows]


def test_the_table_the_code_and_the_tests_know_the_same_reasons():
    assert sorted(table("Reasons")) == sorted({*CHECKS, *WATCH_CODES})
    assert sorted(CASES | WATCHED) == sorted({*CHECKS, *WATCH_CODES})


def test_the_table_the_code_and_the_tests_know_the_same_warnings():
    assert sorted(table("Warnings")) == sorted(WARNINGS) == sorted(WARNED)


# -- rules ---------------------------------------------------------------------------------------


def test_what_watches_saw_comes_first():
    evidence = CASES["cached_tokens"]().evidence()
    found = reasons_against(evidence, ("compiled: AUTOTUNE",))
    assert codes(found) == ["compiled", "cached_tokens"]


def test_natural_length_has_only_an_upper_bound():
    load = Load(workload={"natural_length": True, "output_tokens": TOKENS + 10})
    assert judged(load)[0] == []
    load = Load(workload={"natural_length": True, "output_tokens": TOKENS - 1})
    assert judged(load)[0] == ["completion_tokens"]


def test_an_endpoint_that_counts_nothing_is_not_believed():
    assert judged(answering(Load(PLAIN), completion_tokens=None))[0] == ["token_totals"]


def test_a_shared_prefix_may_be_cached():
    load = WARNED["prefix_not_cached"]()
    for request in load.requests[1:]:
        request.answer["cached_tokens"] = 450
    assert judged(load) == ([], [])


def test_a_group_for_each_prompt_shares_nothing_on_purpose():
    load = WARNED["prefix_not_cached"]()
    load.workload["shared_prefix"] = SharedPrefix(500, groups=len(load.requests))
    assert judged(load) == ([], [])
    load.workload["shared_prefix"] = SharedPrefix(500, groups=len(load.requests) - 1)
    assert judged(load) == ([], ["prefix_not_cached"])


def test_an_adaptive_server_is_judged_by_its_largest_candidate():
    # Six drafts in a verify, where it runs three steps just now.
    figures = {"verify_calls": 10, "correct_drafts": 54, "histogram": (0, 0, 0, 0, 3, 0, 7)}
    load = answering(merged(Load()), **figures)
    assert judged(load)[0] == ["accept_length"]
    load = answering(merged(Load(more={"adaptive_steps": (1, 3, 7)})), **figures)
    assert judged(load)[0] == []


def test_an_adaptive_server_may_decode_plainly():
    load = Load(more={"adaptive_steps": (0, 1, 3)})
    for request in load.requests[::2]:
        request.answer |= {"verify_calls": 0, "correct_drafts": 0, "histogram": ()}
    assert judged(load)[0] == []


@pytest.mark.parametrize(
    ("tokens", "turn_tokens", "found"),
    [(13, 0, []), (40, 0, ["prompt_tokens"]), (40, 30, []), (60, 30, ["prompt_tokens"])],
)
def test_a_text_has_no_more_tokens_than_bytes_and_its_template(tokens, turn_tokens, found):
    load = answering(Load(), prompt_tokens=tokens)
    load.prompts = [
        Prompt(request.prompt, f"{request.prompt[::-1]} why?", turn_tokens=turn_tokens)
        for request in load.requests
    ]
    assert judged(load)[0] == found


def test_an_answer_has_as_many_ids_as_tokens():
    load = Load()
    load.requests[0].ids = tuple(range(TOKENS - 1))
    assert judged(load)[0] == ["token_totals"]


def test_a_chunk_may_claim_what_was_decoded_while_it_was_held_back():
    load = Load(PLAIN)
    for request in load.requests:
        request.claim, request.first = TOKENS - 8, 0.05 * (TOKENS - 8)
    assert judged(load)[0] == []


def test_a_client_that_stood_still_reads_a_burst_of_claims():
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
def test_claims_of_most_answers_count(share, found):
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


def test_an_answer_has_no_more_chunks_than_verifies_and_prefills():
    (reason,) = reasons_against(shifted(Load()).evidence())
    assert codes([reason]) == ["acceptance_counts"]
    assert "verify calls cannot give" in reason


def test_a_retraction_gives_a_chunk_without_a_verify():
    load = answering(shifted(Load()), retractions=1)
    assert judged(load)[0] == []
    # OpenAI's endpoints do not tell of retractions.
    assert judged(answering(shifted(Load()), retractions=None))[0] == []


def test_chunks_may_merge_and_an_adaptive_server_may_decode_between_verifies():
    assert judged(merged(shifted(Load())))[0] == []
    assert judged(shifted(Load(more={"adaptive_steps": (0, 1, 3)})))[0] == []


@pytest.mark.parametrize("accepted", [[0], [3]])
def test_equal_accounts_of_nothing_or_everything_are_not_stale(accepted):
    load = Load()
    for request in load.requests:
        request.accepted = accepted
    assert judged(load)[0] == []


def test_accounts_that_repeat_for_answers_of_different_lengths_contradict_them():
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
def test_noise_of_acceptance_is_not_unsteady(paces, accepted):
    """Whatever the drafts, a server whose verifies take one time is steady."""
    load = Load(pace=lambda _now: paces[0])
    for request, pattern in zip(load.requests, accepted, strict=True):
        request.accepted = pattern
    assert "unsteady" not in judged(load)[0]


def test_long_prefills_are_no_standstill():
    load = Load(PLAIN, OperatingPoint(1), count=4, gap=20.0)
    for request in load.requests:
        request.first = 16.0
    assert "silent" not in judged(load)[0]
    for request in load.requests[:3]:
        request.first = 0.1
    assert "silent" in judged(load)[0]


def test_a_pause_is_not_unsteady_but_a_slower_server_is():
    load = Load()
    load.requests[3].pause = 20.0
    assert judged(load) == ([], ["stalled"])
    assert judged(CASES["unsteady"]()) == (["unsteady"], [])


def test_an_adaptive_server_may_change_its_pace():
    load = CASES["unsteady"]()
    load.more = {"adaptive_steps": (0, 1, 3)}
    assert judged(load) == ([], [])


def test_a_pause_in_a_window_without_length_is_no_error():
    load = WARNED["stalled"]()
    load.more = {"closed": 0.0}
    assert judged(load)[0] == ["empty_window"]


def test_the_ramp_does_not_make_a_queue_that_holds_grow():
    # 160 requests in a window of 40 s, each of them answered in 24 s; those before it in 4 s.
    load = Load(PLAIN, OperatingPoint(request_rate=4.0), gap=0.25, count=221)
    for n, request in enumerate(load.requests):
        request.sent = (n - 60) * 0.25
        request.pace = lambda _now, n=n: (4.0 if n < 60 else 24.0) / TOKENS
    assert judged(load)[0] == []


@pytest.mark.parametrize(("faster", "found"), [(3.1, []), (4.5, []), (8.0, ["too_fast"])])
def test_a_server_may_become_faster_than_its_warmup(faster, found):
    load = Load(PLAIN, more={"decode_s": 0.05 * faster})
    for request in load.requests:
        request.first = 0.0
    assert judged(load)[0] == found


def test_some_answers_from_a_cache_are_enough():
    load = Load(PLAIN, more={"decode_s": 0.05})
    for request in load.requests[::4]:
        request.first, request.pace = 0.005, lambda _now: 0.0005
    assert judged(load)[0] == ["too_fast"]


def test_few_requests_are_not_called_unsteady():
    assert judged(Load(point=OperatingPoint(1), count=2, pace=lambda n: 0.05 + n))[0] == []


@pytest.mark.parametrize("rate", [0.5, 1.0, 1.9])
def test_a_queue_that_holds_is_no_reason(rate):
    point = OperatingPoint(request_rate=rate)
    assert judged(Load(PLAIN, point, gap=1 / rate, count=40))[0] == []


def test_a_short_window_says_how_many_requests_are_enough():
    load = CASES["short_window"]()
    (reason,) = reasons_against(load.evidence())
    assert "0 of the 64 requests that were sent in the window (6.3 s) ended in it" in reason
    count = int(re.search(r"raise `requests` to about (\d+), or lower the rate$", reason)[1])
    assert count > 300
    longer = Load(PLAIN, load.point, gap=0.1, count=count)
    for request in longer.requests:
        request.pace = load.requests[0].pace
    assert judged(longer)[0] == []


def test_a_trace_that_is_too_short_has_to_be_longer():
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
def test_what_is_in_flight_beyond_the_servers_limit_is_a_queue(load, warned):
    assert ("queued" in judged(load)[1]) is warned


def test_late_by_less_than_matters_is_no_reason():
    load = Load(PLAIN, OperatingPoint(request_rate=100.0), gap=0.01, count=40)
    for request in load.requests:
        request.late = 0.008
    assert "client_late" not in judged(load)[0]


@pytest.mark.parametrize(
    ("equal", "warned"),
    [((28,), True), ((16,), True), ((15,), False), ((2,) * 8, True), ((3,), False)],
)
def test_half_of_the_answers_equal_to_others_are_degenerate(equal, warned):
    """Of 32 answers, groups of so many are equal."""
    load = Load(PLAIN, count=32)
    groups = [group for group, size in enumerate(equal) for _ in range(size)]
    for request, group in zip(load.requests, groups, strict=False):
        request.ids = tuple(range(100 * group, 100 * group + 16))
    assert ("degenerate_output" in judged(load)[1]) is warned


def test_three_equal_answers_of_six_are_no_sign():
    load = Load(PLAIN, count=6)
    for request in load.requests[:3]:
        request.ids = tuple(range(16))
    assert "degenerate_output" not in judged(load)[1]


@pytest.mark.parametrize(("text", "warned"), [("!" * 40, True), ("Paris is a city.", False)])
def test_without_ids_the_text_is_looked_at(text, warned):
    load = Load(PLAIN)
    for n, request in enumerate(load.requests):
        request.answer |= {"output_ids": (), "text": text if warned else f"{n} {text}"}
    assert (judged(load)[1] == ["degenerate_output"]) is warned


def test_short_answers_from_a_cache_are_too_fast():
    load = Load(PLAIN, more={"decode_s": 0.05})
    for request in load.requests:
        request.tokens, request.first, request.pace = 5, 0.002, lambda _now: 0.0005
    assert "too_fast" in judged(load)[0]


def test_latencies_of_the_drain_alone_are_not_believed():
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
def test_broken_decoding_is_degenerate_whatever_it_repeats(ids):
    load = Load(PLAIN)
    for n, request in enumerate(load.requests):
        request.ids = tuple(ids(n, k) for k in range(TOKENS))
    assert [code for code in judged(load)[1] if code == "degenerate_output"]


def test_one_answer_cut_to_many_lengths_is_degenerate():
    load = Load(PLAIN)
    for n, request in enumerate(load.requests):
        request.tokens = TOKENS - n
        request.ids = tuple(range(TOKENS - n))
    assert "degenerate_output" in judged(load)[1]


def test_answers_of_a_few_chunks_end_together_by_nature():
    load = Load(PLAIN, OperatingPoint(4), together=True)
    for request in load.requests:
        request.tokens = 5
    assert "lock_step" not in judged(load)[0]
