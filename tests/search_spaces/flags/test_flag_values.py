"""Values and names of SGLang's flags, by the options of three versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.flags.flag_values import flag_problem, old_value, unknown_flag
from search_spaces.flags.options import VERSIONS, options

TAKEN = {
    "a choice": ("attention-backend", "fa3"),
    "a choice that is a number": ("log-requests-level", 2),
    "a whole number": ("tp-size", 8),
    "a whole number in quotes": ("tp-size", "08"),
    "thousands": ("context-length", "25.6k"),
    "binary thousands": ("context-length", "32Ki"),
    "a number": ("mem-fraction-static", 0.8),
    "a whole number for a number": ("mem-fraction-static", 1),
    "a number for text": ("served-model-name", 8),
    "a switch": ("disable-radix-cache", True),
    "nothing": ("tp-size", None),
    "several": ("cuda-graph-bs-decode", (1, 2, 4)),
    "one of several": ("cuda-graph-bs-decode", 8),
    "perhaps a value": ("model-checksum", True),
    "JSON": ("preferred-sampling-params", '{"temperature": 0.5}'),
    "a flag that nobody knows": ("flag-of-tomorrow", "x"),
    "a switch of its opposite": ("no-enable-tf32-matmul", True),
}
REFUSED = {
    "a choice misspelled": ("attention-backend", "flashinfr", "did you mean `flashinfer`?"),
    "a beginning of several": ("kv-cache-dtype", "fp8", "begin with it"),
    "a beginning of one": ("attention-backend", "tri", "did you mean `triton`?"),
    "far from all": ("quantization", "zzz", "and 19 more"),
    "far from a few": ("dtype", 16, "valid: auto, half"),
    "a word": ("tp-size", "eight", "Takes a whole number, not 'eight'"),
    "half a number": ("page-size", 1.5, "Takes a whole number, not 1.5"),
    "a large letter": ("context-length", "32K", "such as 32k (32,000)"),
    "a fraction of binary thousands": ("context-length", "1.5Ki", "such as 32k (32,000)"),
    "no number": ("mem-fraction-static", "big", "Takes a number, not 'big'"),
    "no value": ("tp-size", True, "Is no switch: it takes a whole number"),
    "no choice": ("attention-backend", True, "it takes one of `triton`"),
    "a value of a switch": ("disable-radix-cache", "yes", "Is a switch"),
    "a list of a switch": ("disable-radix-cache", (1,), "Is a switch"),
    "a list": ("tp-size", (1, 2), "Takes one value, not the list [1, 2]"),
    "one of several": ("cuda-graph-bs-decode", (1, 2, "x"), "Takes a whole number, not 'x'"),
    "a switch among several": ("cuda-graph-bs-decode", (True,), "not true"),
    "several in one word": ("cuda-graph-bs-decode", "1 2", "a list, `[1, 2]`"),
    "no JSON": ("preferred-sampling-params", "{a}", "Takes JSON"),
    "JSON of another kind": ("cuda-graph-config", "[1]", "Takes JSON"),
}


@pytest.mark.parametrize(("name", "value"), TAKEN.values(), ids=TAKEN.keys())
def test_what_sglang_takes(name, value):
    assert flag_problem(name, value) is None


@pytest.mark.parametrize(("name", "value", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_sglangs_parser_refuses(name, value, says):
    assert says in flag_problem(name, value)


def test_a_value_that_any_version_takes_is_taken():
    known = [set(options(version)["quantization"].choices) for version in VERSIONS]
    for choice in set().union(*known):
        assert flag_problem("quantization", choice) is None


def test_a_value_that_only_older_versions_take_is_told():
    told = old_value("attention-backend", "cutlass_mla")
    assert told.startswith("Only SGLang 0.5.9 and 0.5.17, not 0.5.23, takes `cutlass_mla`; did")
    for value in ("fa3", "nonsense", None):
        assert old_value("attention-backend", value) is None


def test_off_is_not_the_same_as_not_given():
    assert "`no-enable-tf32-matmul: true`" in flag_problem(
        "enable-tf32-matmul", None, written=False
    )
    assert flag_problem("disable-radix-cache", None, written=False) is None
    assert flag_problem("enable-tf32-matmul", None, written=None) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("atention-backend", "No known SGLang version has this flag; did you mean `att"),
        ("enable-nothing-of-this", "No known SGLang version has this flag"),
        ("mem-fraction", "reads it as `mem-fraction-static`: write the whole name"),
        ("speculative-eagle", "reads it as `speculative-eagle-topk`"),
        ("speculative-n", "begin with this text: write one"),
        ("cuda-graph-max-bs", "only 0.5.9 and 0.5.17 have it; 0.5.23 has `--cuda-graph-max-bs-de"),
    ],
)
def test_a_flag_that_the_newest_version_does_not_have(name, says):
    assert says in unknown_flag(name)


def test_flags_of_the_newest_version_are_no_news():
    assert not [name for name in options() if unknown_flag(name) is not None]


NAMES = st.sampled_from(sorted(options()))
WORDS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)
)


@given(NAMES, st.one_of(WORDS, st.lists(WORDS, max_size=3).map(tuple)))
def test_any_value_of_any_flag_is_taken_or_told(name, value):
    problem = flag_problem(name, value)
    assert problem is None or problem


@given(st.data())
def test_every_choice_of_every_flag_is_taken(data):
    option = options()[data.draw(NAMES)]
    if option.choices:
        choice = data.draw(st.sampled_from(option.choices))
        assert flag_problem(option.name, choice) is None
        assert flag_problem(option.name, f"{choice}~") is not None
