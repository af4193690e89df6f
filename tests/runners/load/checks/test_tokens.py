"""Checks of cached prompt tokens."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from runners.load.checks.tokens import cached_tokens, shared_prefixes
from runners.load.prompts.prompts import Prompt
from search_spaces.configuration import Speculation

from ..windows import PLAIN, Load
from .samples import sample, window


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
    assert "c has 4 cached tokens, but shares at most 3" in judged(3, 3, 4)


def test_what_a_prompt_shares_with_the_ramp_may_come_from_the_cache():
    load = Load(PLAIN)
    load.prompts = [
        Prompt(r.prompt, input_ids=(n, *range(900, 908))) for n, r in enumerate(load.requests)
    ]
    load.requests[0].answer = {"cached_tokens": 5, "prompt_tokens": 9}
    assert cached_tokens(load.evidence()) is not None
    load.more["ramp_prompts"] = (Prompt("ramp/0", input_ids=(0, *range(900, 904), 1, 2)),)
    assert cached_tokens(load.evidence()) is None
