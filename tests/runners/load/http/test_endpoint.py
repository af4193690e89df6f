"""Accounts that are no counts: a failed request, never an accident of ours."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.load.http.acceptance import acceptance_of
from runners.load.http.connection import NotHttpError, ResponseParser
from runners.load.http.endpoint import Answer, MalformedStreamError, count_of, counts_of
from runners.load.http.generate import GenerateReader, answer_of, completion_tokens
from runners.load.http.openai import OpenAIReader

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
COUNTS = ("completion_tokens", "prompt_tokens", "cached_tokens")
ACCEPTANCE = (
    "spec_verify_ct",
    "spec_num_correct_drafts",
    "spec_num_proposed_drafts",
    "spec_correct_drafts_histogram",
)


@pytest.mark.parametrize(
    ("value", "count"), [(None, None), (0, 0), (7, 7), (7.0, 7), (2**63 - 1, 2**63 - 1)]
)
def test_counts(value, count):
    assert count_of(value, "x") == count


@pytest.mark.parametrize(
    "value", [-1, 1.5, True, "7", [7], {}, 2**63, float("nan"), float("inf"), 1e300]
)
def test_what_is_no_count(value):
    with pytest.raises(MalformedStreamError, match="the server's x"):
        count_of(value, "x")


@pytest.mark.parametrize("value", [7, "77", {"7": 7}, [7, -1], [[7]]])
def test_what_is_no_list_of_counts(value):
    with pytest.raises(MalformedStreamError, match="the server's x"):
        counts_of(value, "x")


def sound(answer):
    counts = (answer.completion_tokens, answer.prompt_tokens, answer.cached_tokens)
    assert all(count is None or (type(count) is int and count >= 0) for count in counts)
    assert all(type(token) is int for token in answer.output_ids)


@given(
    meta=st.fixed_dictionaries({}, optional=dict.fromkeys((*COUNTS, *ACCEPTANCE), JSON)),
    reason=JSON,
    ids=JSON,
    text=JSON,
)
def test_any_answer_of_generate_is_read_or_refused(meta, reason, ids, text):
    meta["finish_reason"] = reason
    try:
        answer = answer_of({"text": text, "output_ids": ids, "meta_info": meta})
    except MalformedStreamError:
        return
    assert isinstance(answer, Answer)
    sound(answer)


@given(meta=st.fixed_dictionaries({}, optional=dict.fromkeys(ACCEPTANCE, JSON)))
def test_any_acceptance_is_read_or_refused(meta):
    try:
        got = acceptance_of(meta)
    except MalformedStreamError:
        return
    assert all(type(n) is int and n >= 0 for n in (*got.histogram, got.verify_calls))


@given(
    events=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "choices": JSON
                | st.lists(
                    st.fixed_dictionaries(
                        {}, optional=dict.fromkeys(("delta", "text", "finish_reason"), JSON)
                    ),
                    max_size=2,
                ),
                "usage": JSON
                | st.fixed_dictionaries(
                    {}, optional=dict.fromkeys((*COUNTS, "prompt_tokens_details"), JSON)
                ),
                "sglext": JSON
                | st.fixed_dictionaries(
                    {},
                    optional={
                        "cached_tokens_details": JSON
                        | st.fixed_dictionaries({}, optional={"device": JSON}),
                        "spec_tokens_details": JSON,
                    },
                ),
                "error": JSON,
            },
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_stream_of_openais_is_read_or_refused(events):
    reader = OpenAIReader()
    try:
        for event in events:
            counted = reader.feed(b"data: " + orjson.dumps(event, default=str) + b"\n\n")
            assert counted is None or type(counted) is int
        answer = reader.answer()
    except (MalformedStreamError, TypeError) as error:
        # orjson writes no integer beyond 64 bits; everything else is refused by name.
        if not isinstance(error, MalformedStreamError) and "64-bit" not in str(error):
            raise
        return
    sound(answer)


def test_a_number_without_end_is_no_count():
    chunk = b'data: {"meta_info":{"completion_tokens":' + b"9" * 5000 + b"}}\n\n"
    assert completion_tokens(chunk) is None
    reader = GenerateReader()
    assert reader.feed(chunk) is None
    with pytest.raises(MalformedStreamError):
        reader.answer()


def test_a_length_without_end_is_none():
    parser = ResponseParser(lambda _status, _raw: None)
    with pytest.raises(NotHttpError):
        parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
