"""The built-in prompts."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.load.prompts.built_in import built_in_texts
from runners.load.prompts.conformance import PromptSourceConformance
from runners.load.prompts.prompts import (
    BUILT_IN_SETS,
    BuiltInPrompts,
    NotEnoughPromptsError,
    Prompt,
)
from search_spaces.workload import OperatingPoint, Workload


class TestBuiltInPrompts(PromptSourceConformance):
    large = 160

    def make(self):
        return BuiltInPrompts((("chat", 0.5), ("code", 0.5)))


class TestOneSet(PromptSourceConformance):
    def make(self):
        return BuiltInPrompts((("maths", 1.0),))


def test_enough_for_a_window_at_concurrency_32():
    prompts = BuiltInPrompts((("chat", 0.5), ("code", 0.5))).select(4 * 32 + 32, seed=0)
    assert len(prompts) == 160


@given(
    shares=st.dictionaries(st.sampled_from(BUILT_IN_SETS), st.floats(0.1, 10), min_size=1),
    count=st.integers(1, 36),
    seed=st.integers(0, 1000),
)
def test_every_beginning_keeps_the_shares(shares, count, seed):
    total = sum(shares.values())
    selection = BuiltInPrompts(tuple(shares.items())).select(count, seed)
    for name, share in shares.items():
        got = sum(prompt.id.startswith(f"{name}/") for prompt in selection)
        assert abs(got - share / total * count) < len(BUILT_IN_SETS)


def test_the_order_of_the_shares_does_not_matter():
    a = BuiltInPrompts((("chat", 1.0), ("code", 1.0))).select(20, 1)
    b = BuiltInPrompts((("code", 1.0), ("chat", 1.0))).select(20, 1)
    assert a == b


def test_another_process_gives_the_same_selection():
    code = (
        "from runners.load.prompts.prompts import BuiltInPrompts;"
        "print([p.id for p in BuiltInPrompts((('chat', 1.0),)).select(20, 9)])"
    )
    env = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    here = [prompt.id for prompt in BuiltInPrompts((("chat", 1.0),)).select(20, 9)]
    assert done.stdout.strip() == str(here)


def test_no_two_prompts_begin_alike():
    texts = sorted(text for name in BUILT_IN_SETS for text in built_in_texts(name))
    for a, b in itertools.pairwise(texts):
        assert len(os.path.commonprefix([a, b])) <= 16, (a[:40], b[:40])  # noqa: RUF071


def test_prompts_are_production_like_texts():
    for name in BUILT_IN_SETS:
        texts = built_in_texts(name)
        longest = 20_000 if name == "retrieval" else 4000
        assert all(40 <= len(text) <= longest for text in texts)
        assert all(text == text.strip() for text in texts)


@pytest.mark.parametrize("name", BUILT_IN_SETS)
def test_one_set_is_enough_for_a_window_at_concurrency_64(name):
    workload = Workload(((name, 1.0),), 256, (OperatingPoint(64),))
    [point] = workload.points
    count = workload.requests_at(point) + workload.warmup_at(point)
    assert count == 320
    prompts = BuiltInPrompts(workload.prompts).select(count, seed=0)
    assert len({prompt.text for prompt in prompts}) == count


def test_too_many_names_the_set_and_the_remedy():
    with pytest.raises(NotEnoughPromptsError, match=r"'code' has only \d+: lower the concurrency"):
        BuiltInPrompts((("code", 1.0),)).select(1000, 0)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((), "no prompt set"),
        ((("poems", 1.0),), "unknown prompt set 'poems'; the built-in sets are chat, code"),
        ((("chat", 0.0),), "must be positive"),
        ((("chat", float("nan")),), "must be positive"),
        ((("chat", 0.5), ("chat", 0.5)), "named twice"),
    ],
)
def test_bad_shares(shares, message):
    with pytest.raises(ValueError, match=message):
        BuiltInPrompts(shares)


@pytest.mark.parametrize(("text", "ids"), [(None, None), ("a", (1,))])
def test_a_prompt_is_either_text_or_ids(text, ids):
    with pytest.raises(ValueError, match="either text or input_ids"):
        Prompt("x", text, ids)
