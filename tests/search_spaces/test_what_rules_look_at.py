"""Rules and canonical forms look at what they declare: a space relies on it to be fast."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.configuration import Speculation
from search_spaces.nccl.variables import VARIABLES
from search_spaces.rules import RULE_ENV, RULES
from search_spaces.rules.candidate import Candidate
from search_spaces.variables import CANONICAL_ENV, canonical_env

from ..examples import examples  # noqa: TID252 - the tests are no package
from .recorder import Recorder

names = st.sampled_from([*sorted(VARIABLES), "SGLANG_X", "A"])
texts = st.sampled_from(
    [
        "0",
        "1",
        "4",
        "0x8",
        "-2",
        "abc",
        "",
        "LOC",
        "SYS",
        "ll",
        "LL,Simple",
        "^ring",
        "Tree",
        "ll;x",
    ]
)
environments = st.dictionaries(names, st.one_of(st.none(), texts), max_size=8)
given_environments = st.dictionaries(names, texts, max_size=8)


@settings(deadline=None)
@given(given_environments, st.sampled_from(["none", "EAGLE3", "NGRAM"]))
def test_rules_look_at_no_other_variables_than_they_declare(env, algorithm):
    for rule in RULES:
        flags, given_env = Recorder(), Recorder(env)
        rule.check(Candidate(Speculation(algorithm, 3, 1, 4), 1, flags, given_env))
        assert given_env.asked <= rule.env <= RULE_ENV
        if not rule.server:
            assert not flags.asked
            assert rule.env


@settings(deadline=None)
@given(given_environments, given_environments)
def test_what_a_rule_does_not_declare_changes_no_verdict(env, other):
    for rule in (rule for rule in RULES if rule.env):
        seen = {name: value for name, value in env.items() if name in rule.env}
        ignored = {name: value for name, value in other.items() if name not in rule.env}
        verdicts = [
            rule.check(Candidate(Speculation(), None, {}, given_env))
            for given_env in (seen, {**ignored, **seen})
        ]
        assert verdicts[0] == verdicts[1]


@settings(deadline=None, max_examples=examples(100))
@given(environments, environments)
def test_canonical_variables(env, fixed):
    """Idempotent, of the same names, and of nothing but what `CANONICAL_ENV` says."""
    out = canonical_env(env, fixed)
    assert out.keys() == env.keys()
    assert canonical_env(out, fixed) == out
    watched = {name: value for name, value in env.items() if name in CANONICAL_ENV}
    assert {name: out[name] for name in watched} == canonical_env(watched, fixed)
    assert all(out[name] == value for name, value in env.items() if name not in CANONICAL_ENV)
    less = {name: value for name, value in fixed.items() if name in CANONICAL_ENV}
    assert canonical_env(env, less) == out
