"""The pure parts: acceptance, its bounds and its sums, shared prefixes, percentiles."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.records import RequestSample
from runners.load.checks.acceptance_checks import counts_differ, missing, out_of_bounds
from runners.load.checks.validity import cached_tokens, shared_prefixes
from runners.load.http.stream import answer_of
from runners.load.prompts.prompts import Prompt
from runners.load.window.acceptance import (
    accept_length,
    acceptance_of,
    adaptive_steps_of,
    largest_accept_length,
)
from runners.load.window.evidence import Evidence
from runners.load.window.in_flight import InFlightRequest
from runners.load.window.window import percentile
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

from .windows import PLAIN, Load


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        # 0.5.23
        (
            {
                "spec_verify_ct": 15,
                "spec_num_correct_drafts": 17,
                "spec_correct_drafts_histogram": [5, 3, 7],
                "spec_accept_length": 2.13,
            },
            (15, 17, (5, 3, 7)),
        ),
        # 0.5.12
        (
            {
                "spec_verify_ct": 31,
                "spec_accepted_drafts": 33,
                "spec_accept_histogram": [0, 29, 2],
            },
            (31, 33, (0, 29, 2)),
        ),
        # 0.5.9
        (
            {
                "spec_verify_ct": 20,
                "spec_accept_token_num": 24,
                "spec_draft_token_num": 100,
                "spec_accept_histogram": [5, 6, 9],
            },
            (20, 24, (5, 6, 9)),
        ),
        ({"spec_verify_ct": 47, "spec_num_correct_drafts": 0}, (47, 0, ())),
        ({"spec_accept_length": 3.0}, (0, 0, ())),
        ({"spec_verify_ct": None, "spec_num_correct_drafts": None}, (0, 0, ())),
        ({"spec_verify_ct": 0, "spec_num_correct_drafts": 0}, (0, 0, ())),
        ({}, (0, 0, ())),
    ],
)
def test_every_versions_spelling(meta, expected):
    got = acceptance_of(meta)
    assert (got.verify_calls, got.correct_drafts, got.histogram) == expected


def test_a_body_with_both_spellings(bodies):
    text = (bodies / "0.5.17-h200/e3_1gpu_POST_generate.txt").read_text().split("\n", 1)[1]
    got = acceptance_of(json.loads(text)["meta_info"])
    assert (got.verify_calls, got.correct_drafts, got.histogram) == (31, 33, (0, 29, 2))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("0.5.9-cpu/generate.json", "total_retractions"),
        ("0.5.17-h200/nospec_1gpu_POST_generate.txt", "num_retractions"),
        ("0.5.23-cpu/plain_generate.json", "num_retractions"),
    ],
)
def test_retractions_by_every_versions_name(bodies, body, name):
    text = (bodies / body).read_text()
    event = json.loads(text[text.index("{") :])
    assert answer_of(event).retractions == event["meta_info"][name] == 0
    event["meta_info"][name] = 2
    assert answer_of(event).retractions == 2


def test_the_first_token_is_not_counted(bodies):
    # Nothing was accepted; the server's own spec_accept_length says 1.0213.
    meta = json.loads((bodies / "0.5.23-cpu/eagle3_generate.json").read_text())["meta_info"]
    got = acceptance_of(meta)
    assert accept_length(got.verify_calls, got.correct_drafts) == 1.0
    assert meta["spec_accept_length"] > 1.02


@pytest.mark.parametrize(
    ("speculation", "largest"),
    [
        (Speculation("EAGLE3", 3, 1, 4), 4),
        (Speculation("EAGLE3", 3, 4, 16), 4),
        (Speculation("EAGLE", 5, 8, 4), 4),
        (Speculation("STANDALONE", 4, 2, 8), 5),
        (Speculation("NGRAM", 1, 10, 12), 12),
        (Speculation("DFLASH", 1, 1, 16), 16),
        (Speculation("NEXTN", 1, 1, 2), 2),
        (Speculation("EAGLE3"), None),
    ],
)
def test_the_largest_accept_length(speculation, largest):
    assert largest_accept_length(speculation) == largest


def window(samples, speculation, *, output_tokens=8):
    """Those requests and nothing else."""
    point = OperatingPoint(1)
    workload = Workload((("chat", 1.0),), output_tokens, (point,))
    flights = [InFlightRequest(one.prompt, b"") for one in samples]
    return Evidence(
        samples, flights, [], point, workload, speculation, opened=0.0, closed=1.0, window_tokens=8
    )


def sample(**more):
    values = {
        "prompt": "a",
        "sent_s": 0.0,
        "ttft_s": 0.1,
        "e2e_s": 1.0,
        "prompt_tokens": 10,
        "completion_tokens": 8,
    }
    return RequestSample(**(values | more))


@given(
    shape=st.tuples(st.integers(1, 10), st.integers(2, 32)),
    verify=st.integers(1, 1000),
    algorithm=st.sampled_from(["EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "DFLASH"]),
    data=st.data(),
)
def test_accept_length_is_judged_by_its_bounds(shape, verify, algorithm, data):
    steps, draft_tokens = shape
    speculation = Speculation(algorithm, steps, 2, draft_tokens)
    largest = min(steps + 1, draft_tokens) if "NGRAM" != algorithm != "DFLASH" else draft_tokens

    def judged(correct):
        return out_of_bounds(
            window([sample(verify_calls=verify, correct_drafts=correct)], speculation)
        )

    assert judged(data.draw(st.integers(0, verify * (largest - 1)))) is None
    assert "outside [1, " in judged(verify * (largest - 1) + 1)
    assert "outside [1, " in judged(-1)


@given(histogram=st.lists(st.integers(0, 500), min_size=1, max_size=4).map(tuple), data=st.data())
def test_accounts_that_add_up_are_believed_and_others_are_not(histogram, data):
    verify = sum(histogram)
    correct = sum(k * count for k, count in enumerate(histogram))
    # The last verify may give more than were asked for.
    excess = data.draw(st.integers(0, min(3, verify + correct)))
    values = {
        "verify_calls": verify,
        "correct_drafts": correct,
        "histogram": histogram,
        "completion_tokens": 1 + verify + correct - excess,
    }

    def judged(**changes):
        return counts_differ(window([sample(**values | changes)], Speculation("EAGLE3", 3, 1, 4)))

    assert judged() is None
    if not verify:
        return
    assert judged(histogram=(histogram[0] + 1, *histogram[1:])) is not None
    assert judged(correct_drafts=correct + 1) is not None
    assert judged(histogram=(), completion_tokens=2 + verify + correct) is not None
    assert judged(completion_tokens=verify + correct - 8) is not None


def test_answers_of_one_token_need_no_verify():
    speculation = Speculation("EAGLE3", 3, 1, 4)
    assert missing(window([sample(completion_tokens=1)], speculation, output_tokens=1)) is None
    assert missing(window([sample()], speculation)) is not None


def test_every_real_answer_is_believed(bodies):
    """Counts of servers that nobody here wrote."""
    seen = 0
    for path in bodies.rglob("*generate*"):
        for meta in metas(path.read_text()):
            accounts = acceptance_of(meta)
            if not accounts.verify_calls:
                continue
            seen += 1
            # SGLang's own width stands in the proposals: drafts per verify.
            width = accounts.proposed_drafts // accounts.verify_calls + 1
            real = sample(
                verify_calls=accounts.verify_calls,
                correct_drafts=accounts.correct_drafts,
                histogram=accounts.histogram,
                completion_tokens=meta["completion_tokens"],
            )
            evidence = window([real], Speculation("NGRAM", None, None, max(width, 2)))
            assert [out_of_bounds(evidence), counts_differ(evidence), missing(evidence)] == (
                [None] * 3
            )
    assert seen >= 6


def metas(text):
    """The last `meta_info` of every answer in a recorded body."""
    if text.lstrip().startswith("data:"):
        events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        return [json.loads(events[-1])["meta_info"]]
    body = json.loads(text[min(text.find(c) for c in "[{" if c in text) :])
    answers = body if isinstance(body, list) else [body]
    return [answer["meta_info"] for answer in answers if "meta_info" in answer]


@pytest.mark.parametrize(
    ("info", "steps"),
    [
        ({}, ()),
        ({"speculative_adaptive": False, "speculative_num_steps": 3}, ()),
        ({"speculative_adaptive": True, "speculative_num_steps": 3}, (0, 1, 3, 5, 7)),
        (
            {"speculative_adaptive": True, "internal_states": [{"speculative_num_steps": 9}]},
            (0, 1, 3, 5, 7, 9),
        ),
    ],
)
def test_steps_of_an_adaptive_server(info, steps):
    assert adaptive_steps_of(info) == steps


def test_steps_of_an_adaptive_server_by_its_own_table(tmp_path):
    table = tmp_path / "adaptive.json"
    table.write_text('{"1": {"candidate_steps": [1, 4]}, "8": {"candidate_steps": [2]}, "x": 1}')
    info = {"speculative_adaptive": True, "speculative_adaptive_config": str(table)}
    assert adaptive_steps_of(info) == (1, 2, 4)
    table.write_text("no JSON")
    assert adaptive_steps_of(info) == (0, 1, 3, 5, 7)


def test_an_adaptive_servers_bound_is_its_largest_candidate():
    assert largest_accept_length(Speculation("EAGLE3", 1, 1, 2), (0, 1, 5)) == 6


@given(
    st.lists(
        st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple),
        min_size=1,
        max_size=8,
        unique=True,
    )
)
def test_shared_prefixes_of_ids_are_exact(contents):
    prompts = [Prompt(str(n), input_ids=ids) for n, ids in enumerate(contents)]
    for prompt, shared in zip(prompts, shared_prefixes(prompts).values(), strict=True):
        others = [other.input_ids for other in prompts if other is not prompt]
        expected = max(
            (
                n
                for other in others
                for n in range(min(len(other), len(prompt.input_ids)) + 1)
                if other[:n] == prompt.input_ids[:n]
            ),
            default=0,
        )
        assert shared == expected


def test_shared_prefixes_of_text_allow_the_begin_of_sequence():
    prompts = [Prompt("a", "Write a poem"), Prompt("b", "Write it"), Prompt("c", "Why?")]
    assert shared_prefixes(prompts) == {"a": 7, "b": 7, "c": 2}


def test_a_chat_templates_head_is_no_reason():
    prompts = [Prompt(name, input_ids=(1, 2, 3, n)) for n, name in enumerate("abc")]

    def judged(*cached):
        samples = [
            sample(prompt=prompt.id, cached_tokens=n)
            for prompt, n in zip(prompts, cached, strict=True)
        ]
        return cached_tokens(replace(window(samples, Speculation()), prompts=prompts))

    assert judged(3, 3, 3) is None
    assert "c has 4 where 3 are shared" in judged(3, 3, 4)


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


def test_what_a_prompt_shares_with_the_ramp_may_come_from_the_cache():
    load = Load(PLAIN)
    load.prompts = [
        Prompt(r.prompt, input_ids=(n, *range(900, 908))) for n, r in enumerate(load.requests)
    ]
    load.requests[0].answer = {"cached_tokens": 5, "prompt_tokens": 9}
    assert cached_tokens(load.evidence()) is not None
    load.more["ramp_prompts"] = (Prompt("ramp/0", input_ids=(0, *range(900, 904), 1, 2)),)
    assert cached_tokens(load.evidence()) is None
