"""Names of prompt sources, and shares as a command line writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.prompt_names import (
    BUILT_IN_SETS,
    DATASET_PROMPTS,
    parse_prompt_name,
    parse_shares,
)

NAMES = (*BUILT_IN_SETS, "jsonl:a/b.jsonl", "sharegpt:c=d.json", "sglang:random-ids?num-prompts=9")


@pytest.mark.parametrize(
    ("written", "scheme", "rest", "options"),
    [
        ("chat", "", "chat", ()),
        ("jsonl:a/b:c.jsonl", "jsonl", "a/b:c.jsonl", ()),
        ("sharegpt:x.json", "sharegpt", "x.json", ()),
        ("sglang:random", "sglang", "random", ()),
        (
            "sglang:random-ids?--random_input_len=8&num-prompts=5&tokenize-prompt=",
            "sglang",
            "random-ids",
            (("num-prompts", "5"), ("random-input-len", "8"), ("tokenize-prompt", "")),
        ),
    ],
)
def test_prompt_names_are_parsed(written, scheme, rest, options):
    name = parse_prompt_name(written)
    assert (name.written, name.scheme, name.rest, name.options) == (written, scheme, rest, options)


def test_num_prompts_of_a_data_set():
    assert parse_prompt_name("chat").most_prompts is None
    assert parse_prompt_name("sglang:random").most_prompts == DATASET_PROMPTS
    assert parse_prompt_name("sglang:random?num-prompts=7").most_prompts == 7


@given(shares=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 50), min_size=1))
def test_shares_read_back_what_was_written(shares):
    # A `=` in a path needs the share written out, which it is here.
    text = ", ".join(f"{name}={share}" for name, share in shares.items())
    total = sum(shares.values())
    assert parse_shares(text) == tuple(sorted((n, s / total) for n, s in shares.items()))


def test_a_name_without_a_share_has_share_1():
    assert parse_shares("chat") == (("chat", 1.0),)
    assert parse_shares("chat,code=3") == (("chat", 0.25), ("code", 0.75))
    alone = "sglang:random-ids?random-input-len=64&num-prompts=9"
    assert parse_shares(alone) == ((alone, 1.0),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chats", "did you mean `chat`"),
        ("", "Unknown prompt set"),
        ("chat=0", "share of chat must be a number above 0, not '0'"),
        ("chat=much", "must be a number above 0, not 'much'"),
        ("chat=inf", "above 0"),
        ("chat,chat", "chat is repeated"),
        ("http:x", "Unknown kind of prompts 'http'"),
    ],
)
def test_invalid_shares_are_refused(text, says):
    with pytest.raises(ValueError, match=says):
        parse_shares(text)
