"""Shared prefixes: dealt out evenly, exact in token ids, and what may come from the cache."""

from __future__ import annotations

import collections
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.base import RunnerError
from runners.load.checks.tokens import shared_prefixes
from runners.load.prompts.conformance import PromptSourceConformance
from runners.load.prompts.prefixes import SharedPrefixPrompts, first_words, prefix_text
from runners.load.prompts.prompts import BuiltInPrompts, Prefix, Prompt
from runners.load.prompts.rendering import IdentityRenderer
from runners.load.prompts.sources import prompt_source
from search_spaces.workload import SharedPrefix

CHAT = (("chat", 1.0),)


class TestSharedPrefixPrompts(PromptSourceConformance):
    def make(self):
        return prompt_source(CHAT, shared_prefix=SharedPrefix(40, 3))


@settings(deadline=None)
@given(
    groups=st.integers(1, 12),
    tokens=st.integers(1, 400),
    count=st.integers(0, 40),
    seed=st.integers(0, 100),
)
def test_prompts_are_dealt_out_evenly(groups, tokens, count, seed):
    source = SharedPrefixPrompts(BuiltInPrompts(CHAT), SharedPrefix(tokens, groups))
    selection = source.select(count, seed)
    sizes = collections.Counter(prompt.prefix for prompt in selection)
    assert len(sizes) == min(groups, count)
    if sizes:
        assert max(sizes.values()) - min(sizes.values()) <= 1
    plain = BuiltInPrompts(CHAT).select(count, seed)
    assert [prompt.text for prompt in selection] == [prompt.text for prompt in plain]


@settings(deadline=None)
@given(a=st.integers(0, 300), b=st.integers(0, 300), words=st.integers(1, 3000))
def test_prefixes_are_long_enough_and_do_not_begin_alike(a, b, words):
    one, other = prefix_text(a, words), prefix_text(b, words)
    assert len(one.split()) >= words
    if a != b:
        assert len(os.path.commonprefix([one, other])) <= 3  # noqa: RUF071


def test_a_prefix_is_written_text():
    text = prefix_text(0, 500)
    assert len(re.findall(r"[a-z]{3,}", text)) > 300
    assert prefix_text(0, 100) == text[: len(prefix_text(0, 100))]


@given(text=st.text(st.sampled_from("ab \n")), count=st.integers(1, 20))
def test_first_words(text, count):
    cut = first_words(text, count)
    assert text.startswith(cut)
    assert cut.split() == text.split()[:count]


def test_without_a_tokenizer_words_are_counted():
    source = prompt_source(CHAT, shared_prefix=SharedPrefix(100, 2))
    selection = source.select(8, 0)
    rendered = IdentityRenderer().render(selection)
    assert all(prompt.prefix is None for prompt in rendered)
    for before, after in zip(selection, rendered, strict=True):
        begin, _, rest = after.text.rpartition("\n\n" + before.text)
        assert rest == ""
        assert len(begin.split()) == 100


def test_a_chat_has_its_prefix_in_the_first_turn():
    turns = (("system", "Be brief."), ("user", "Why?"))
    prompt = Prompt("x", messages=turns, prefix=Prefix("one two three", 2))
    [rendered] = IdentityRenderer().render([prompt])
    assert rendered.messages == (("system", "one two\n\nBe brief."), ("user", "Why?"))


def test_token_ids_need_a_tokenizer():
    prompt = Prompt("x", input_ids=(1, 2), prefix=Prefix("one two", 2))
    with pytest.raises(RunnerError, match="remove shared_prefix") as caught:
        IdentityRenderer().render([prompt])
    assert caught.value.failure.fault == "study"


def test_validity_allows_what_the_prefixes_share():
    selection = prompt_source(CHAT, shared_prefix=SharedPrefix(100, 4)).select(16, 0)
    allowed = shared_prefixes(IdentityRenderer().render(selection))
    for prompt in selection:
        # As text it is an upper bound: at least a token per word of the prefix.
        assert allowed[prompt.id] >= len(first_words(prompt.prefix.text, 100).encode())
    alone = prompt_source(CHAT, shared_prefix=SharedPrefix(100, 16)).select(16, 0)
    assert max(shared_prefixes(IdentityRenderer().render(alone)).values()) <= 8
