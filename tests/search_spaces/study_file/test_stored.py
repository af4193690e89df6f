"""Lenient reading of stored studies."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.problems import StudyFileError
from search_spaces.space.baselines import baselines
from search_spaces.study_file.load import parse_stored, parse_study, shipped_text

pytestmark = pytest.mark.slow

TEXT = """\
study: mine
model: {path: org/model, draft: org/draft}
server: {flags: {tp-size: 2}, env: {NCCL_PROTO: LL}}
space: {speculation: [{algorithm: none}, {algorithm: EAGLE3, num_steps: [1, 2], topk: 1}]}
workload: {prompts: {chat: 1}, output_tokens: 16}
budget: {launches: 4}
"""


def test_a_valid_stored_study_reads_as_before():
    read = parse_stored(TEXT, "x", base_dir="there")
    assert (read.problems, read.unread) == ((), ())
    assert read.study.model_dump() == parse_study(TEXT, "x").model_dump()
    assert (read.study.base_dir, read.study.text) == ("there", TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tp-size: 2", "tp-size: 2, speculative-algorithm: EAGLE3"),
        ("NCCL_PROTO: LL", "NCCL_PROTO: simpel"),
        (", draft: org/draft", ""),
    ],
)
def test_violated_relations_and_rules_are_reported_only(old, new):
    text = TEXT.replace(old, new)
    with pytest.raises(StudyFileError):
        parse_study(text, "x", stored=True)
    read = parse_stored(text, "x")
    assert read.problems
    assert read.unread == ()
    assert read.study.text == text
    assert read.study.budget.launches == 4


def test_fixed_flags_and_variables_keep_their_text():
    text = TEXT.replace("tp-size: 2", "tp-size: 2, many: [[1], 2]").replace(
        "NCCL_PROTO: LL", "NCCL_PROTO: LL, DEBUG: true"
    )
    read = parse_stored(text, "x")
    assert [p.key for p in read.unread] == ["server.flags.many", "server.env.DEBUG"]
    assert read.study.server.flags == {"tp-size": 2, "many": ([1], 2)}
    assert dict(read.study.server.env) == {"NCCL_PROTO": "LL", "DEBUG": True}


def test_unreadable_values_are_dropped_and_reported():
    text = (
        TEXT.replace("algorithm: EAGLE3", "algorithm: EAGLE9")
        .replace("launches: 4", "launches: many, cost: 3")
        .replace("study: mine", "study: mine.yaml\nproduction: {command: vllm serve}\nnew: {}")
    )
    read = parse_stored(text, "x")
    assert {p.key for p in read.unread} == {
        "study", "new", "space.speculation[1].algorithm", "budget.launches", "budget.cost",
        "production.command",
    }  # fmt: skip
    assert [part.algorithm for part in read.study.space.speculation] == ["none"]
    assert set(baselines(read.study)) == {"none"}


@pytest.mark.parametrize("text", ["", "- a list", "{broken"])
def test_a_text_that_is_not_a_mapping_is_refused(text):
    with pytest.raises(StudyFileError):
        parse_stored(text, "x")


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(0, 1), max_size=2),
    st.dictionaries(st.text(max_size=2), st.none(), max_size=2),
)


def _places(value, path=()):
    yield path
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield from _places(value[key], (*path, key))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_values_never_prevent_reading(data):
    study = yaml.safe_load(shipped_text(data.draw(st.sampled_from(["kimi", "qwen"]))))
    for _ in range(data.draw(st.integers(1, 3))):
        places = [path for path in _places(study) if path]
        *path, last = data.draw(st.sampled_from(places))
        at = study
        for key in path:
            at = at[key]
        at[last] = data.draw(JUNK)
    text = yaml.safe_dump(study, allow_unicode=True)
    read = parse_stored(text, "x")
    assert read.study.text == text
    assert baselines(read.study)["none"]
    assert read.problems == _refusals(text)


def _refusals(text):
    try:
        parse_study(text, "x", stored=True)
    except StudyFileError as error:
        return error.problems
    return ()
