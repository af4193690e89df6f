"""The pure parts: acceptance, percentiles, shared prefixes, reasons."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.records import RequestSample
from runners.load import Prompt
from runners.load.acceptance import accept_length, acceptance_of, largest_accept_length
from runners.load.validity import reasons_against, shared_prefixes
from runners.load.window import percentile
from search_spaces.configuration import Speculation


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


def sample(prompt="a", **more):
    values = {
        "prompt": prompt,
        "sent_s": 0.0,
        "ttft_s": 0.1,
        "e2e_s": 1.0,
        "prompt_tokens": 10,
        "completion_tokens": 8,
    }
    return RequestSample(**(values | more))


def reasons(samples, speculation=Speculation(), prompts=(), **more):  # noqa: B008 - frozen
    values = {"concurrency": 1, "output_tokens": 8, "window_tokens": 8}
    found = reasons_against(samples, prompts, speculation=speculation, **(values | more))
    return [reason.split(":")[0] for reason in found]


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
    correct = data.draw(st.integers(0, verify * (largest - 1)))
    good = sample(verify_calls=verify, correct_drafts=correct)
    assert reasons([good], speculation) == []
    bad = sample(verify_calls=verify, correct_drafts=verify * (largest - 1) + 1)
    assert reasons([bad], speculation) == ["accept_length"]
    negative = sample(verify_calls=verify, correct_drafts=-1)
    assert reasons([negative], speculation) == ["accept_length"]


def test_one_answer_without_acceptance_is_enough():
    speculation = Speculation("EAGLE3", 3, 1, 4)
    good = sample(verify_calls=4, correct_drafts=4)
    assert reasons([good, sample("b")], speculation) == ["acceptance_missing"]


def test_answers_of_one_token_need_no_verify():
    speculation = Speculation("EAGLE3", 3, 1, 4)
    assert reasons([sample(completion_tokens=1)], speculation, output_tokens=1) == []


def test_several_reasons_are_all_named():
    bad = [sample(completion_tokens=3, cached_tokens=5), sample("b", error="HTTP 500")]
    assert reasons(bad, concurrency=3, window_tokens=0) == [
        "failed_requests",
        "too_few_requests",
        "empty_window",
        "completion_tokens",
        "cached_tokens",
    ]


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
    within = [sample(prompt.id, cached_tokens=3) for prompt in prompts]
    assert reasons(within, prompts=prompts) == []
    beyond = [*within[:2], sample("c", cached_tokens=4)]
    assert reasons(beyond, prompts=prompts) == ["cached_tokens"]


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
    assert percentile([], 95) == 0.0
