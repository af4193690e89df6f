from __future__ import annotations

import pytest

from search_spaces.configuration import Configuration, Speculation
from search_spaces.rules import ENGINE, RULES
from search_spaces.rules.legality import canonical, violations

from .test_rules import BROKEN as MORE

DRAFTLESS = {"path": "org/target", "family": "other"}


def one(algorithm, steps=None, topk=None, tokens=None, **other):
    return Configuration.of(Speculation(algorithm, steps, topk, tokens), **other)


REWRITTEN = {
    "a chain's width follows its steps": (one("EAGLE3", 3, 1, 9), ("EAGLE3", 3, 1, 4)),
    "also where it is not given": (one("EAGLE3", 3, 1), ("EAGLE3", 3, 1, 4)),
    "names in any case": (one("eagle3", 3, 2, 4), ("EAGLE3", 3, 2, 4)),
    "NEXTN is EAGLE": (one("NextN", 3, 1), ("EAGLE", 3, 1, 4)),
    "none has no numbers": (one("NONE", 3, 1, 4, draft_tp=8), ("none", None, None, None)),
    "SGLang's defaults": (one("STANDALONE"), ("STANDALONE", 3, 1, 4)),
    "NGRAM has no steps and topk": (one("NGRAM", 3, 4, 8), ("NGRAM", None, None, 8)),
    "NGRAM's default": (one("NGRAM"), ("NGRAM", None, None, 12)),
    "DFLASH drafts in one step": (one("DFLASH", 3, 4, 8), ("DFLASH", 1, 1, 8)),
    "DFLASH's block is the draft's": (one("DFLASH"), ("DFLASH", 1, 1, None)),
    "a tree stays": (one("EAGLE3", 5, 4, 8), ("EAGLE3", 5, 4, 8)),
    "a tree that wastes steps stays": (one("EAGLE3", 9, 2, 4), ("EAGLE3", 9, 2, 4)),
    "what SGLang refuses stays to be refused": (one("EAGLE3", 3), ("EAGLE3", 3, None, None)),
}


@pytest.mark.parametrize(("given", "expected"), REWRITTEN.values(), ids=REWRITTEN.keys())
def test_what_sglang_rewrites_is_canonicalised(make_study, given, expected):
    found = canonical(given, make_study()).speculation
    assert (found.algorithm, found.num_steps, found.topk, found.num_draft_tokens) == expected


def test_draft_tp_is_the_targets_unless_asked_for(make_study):
    study = make_study()
    assert canonical(one("EAGLE3", 3, 1), study).draft_tp == 8
    assert canonical(one("EAGLE3", 3, 1, draft_tp=2), study).draft_tp == 2
    assert canonical(one("NGRAM", draft_tp=2), study).draft_tp is None
    assert canonical(one("none", draft_tp=2), study).draft_tp is None


def test_draft_tp_follows_a_searched_tp_size(make_study):
    parts = [{"algorithm": "EAGLE3", "num_steps": 1, "topk": 1}]
    study = make_study(server={}, space={"speculation": parts, "flags": {"tp-size": [2, 4]}})
    assert canonical(one("EAGLE3", 1, 1, flags={"tp": 4}), study).draft_tp == 4


def test_searched_flags_and_variables_are_always_there(make_study):
    space = {
        "speculation": [{"algorithm": "none"}],
        "flags": {"enable-x": [False, True], "page-size": [1, 16]},
        "env": {"A": [None, "1"]},
    }
    study = make_study(space=space)
    expected = Configuration.of(flags={"enable-x": None, "page-size": 16}, env={"A": None})
    for flags in ({"page_size": "16"}, {"--page-size": 16, "enable-x": False}):
        assert canonical(Configuration.of(flags=flags), study) == expected


def test_speculative_flags_go_without_speculation(make_study):
    space = {
        "speculation": [{"algorithm": "none"}],
        "flags": {"speculative-attention-mode": ["prefill", "decode"]},
    }
    given = Configuration.of(flags={"speculative-attention-mode": "decode"})
    assert canonical(given, make_study(space=space)).flags == (
        ("speculative-attention-mode", None),
    )


def test_adaptive_goes_where_sglang_drops_it(make_study):
    space = {
        "speculation": [{"algorithm": "EAGLE3", "num_steps": 3, "topk": 1}],
        "flags": {"speculative-adaptive": [None, True]},
    }
    study = make_study(space=space)
    adaptive = {"speculative-adaptive": True}
    chain = canonical(one("EAGLE3", 3, 1, flags=adaptive), study)
    tree = canonical(one("EAGLE3", 3, 2, 4, flags=adaptive), study)
    assert chain.flags == (("speculative-adaptive", True),)
    assert tree.flags == (("speculative-adaptive", None),)


# rule, configuration, server flags, a neighbour that is legal
BROKEN = {
    "capacity": ("tree_capacity", one("EAGLE3", 2, 2, 8), {}, one("EAGLE3", 2, 2, 7)),
    "capacity of one step": ("tree_capacity", one("EAGLE3", 1, 4, 6), {}, one("EAGLE3", 1, 4, 5)),
    "no steps": ("steps_positive", one("EAGLE3", 0, 1), {}, one("EAGLE3", 1, 1)),
    "no branch": ("topk_positive", one("EAGLE3", 2, 0, 4), {}, one("EAGLE3", 2, 2, 4)),
    "no token": ("draft_tokens_minimum", one("NGRAM", tokens=1), {}, one("NGRAM", tokens=2)),
    "topk missing": ("numbers_missing", one("EAGLE3", 3, None, 4), {}, one("EAGLE3", 3, 1, 4)),
    "steps missing": ("numbers_missing", one("EAGLE3", None, 1, 4), {}, one("EAGLE3")),
    "tokens missing": ("numbers_missing", one("EAGLE3", 3, 2), {}, one("EAGLE3", 3, 1)),
    "unknown": ("unknown_algorithm", one("UNO", 3, 1, 4), {}, one("none")),
    "trtllm_mha": (
        "trtllm_mha_chain_only",
        one("EAGLE3", 3, 2, 4),
        {"attention-backend": "trtllm_mha"},
        one("EAGLE3", 3, 1),
    ),
    "trtllm_mha in decode": (
        "trtllm_mha_chain_only",
        one("EAGLE3", 3, 2, 4),
        {"decode-attention-backend": "trtllm_mha"},
        one("EAGLE3", 3, 1),
    ),
    "paged tree": (
        "paged_tree_backend",
        one("EAGLE3", 3, 2, 4),
        {"attention-backend": "trtllm_mla", "page-size": 64},
        one("EAGLE3", 3, 1),
    ),
    "flashmla is paged": (
        "paged_tree_backend",
        one("EAGLE3", 3, 2, 4),
        {"attention-backend": "flashmla"},
        one("EAGLE3", 3, 1),
    ),
    "paged tree on a CPU": (
        "paged_tree_backend",
        one("STANDALONE", 3, 2, 4),
        {"device": "cpu", "page-size": 16},
        one("STANDALONE", 3, 1),
    ),
    "paged NGRAM": ("paged_ngram_backend", one("NGRAM"), {"page-size": 16}, one("none")),
    "STANDALONE with data-parallel attention": (
        "attention_dp",
        one("STANDALONE", 3, 1),
        {"enable-dp-attention": True, "dp-size": 2},
        one("EAGLE3", 3, 1),
    ),
    "NGRAM with data-parallel attention": (
        "attention_dp",
        one("NGRAM"),
        {"attn-dp-size": 2},
        one("EAGLE3", 3, 1),
    ),
    "adaptive steps": (
        "adaptive_steps",
        one("EAGLE3", 4, 1),
        {"speculative-adaptive": True},
        one("EAGLE3", 5, 1),
    ),
    "rejection sampling of a tree": (
        "rejection_sampling",
        one("EAGLE3", 3, 2, 4),
        {"speculative-use-rejection-sampling": True},
        one("EAGLE3", 3, 1),
    ),
    "rejection sampling elsewhere": (
        "rejection_sampling",
        one("STANDALONE", 3, 1),
        {"speculative-use-rejection-sampling": True},
        one("EAGLE", 3, 1),
    ),
    "block verification elsewhere": (
        "block_verification",
        one("STANDALONE", 3, 1),
        {"speculative-use-block-verification": True},
        one("DFLASH", tokens=8),
    ),
    "block on a CPU": ("block_device", one("DFLASH", tokens=8), {"device": "cpu"}, one("none")),
    "pipeline": ("pipeline_parallel", one("EAGLE3", 3, 1), {"pp-size": 2}, one("none")),
    "chunks": (
        "chunk_divides_into_pages",
        one("none", flags={"page-size": 16}),
        {"chunked-prefill-size": 100},
        one("none", flags={"page-size": 20}),
    ),
    "no page": (
        "page_size_positive",
        one("none", flags={"page-size": 0}),
        {},
        one("none", flags={"page-size": 1}),
    ),
    "draft_tp": (
        "draft_tp_divides_tp",
        one("EAGLE3", 3, 1, draft_tp=3),
        {},
        one("EAGLE3", 3, 1, draft_tp=4),
    ),
}


@pytest.mark.parametrize(("rule", "bad", "flags", "good"), BROKEN.values(), ids=BROKEN.keys())
def test_what_sglang_refuses_is_illegal_by_name(make_study, rule, bad, flags, good):
    study = make_study(server={"flags": {"tp-size": 8, **flags}})
    (violation,) = violations(bad, study)
    assert violation.rule == rule
    assert violation.source.startswith(ENGINE)
    assert violation.rule in str(violation)
    assert violations(good, study) == ()


def test_a_missing_draft(make_study):
    parts = [{"algorithm": "NEXTN", "num_steps": 1, "topk": 1}]
    study = make_study(model=DRAFTLESS, space={"speculation": parts})
    (violation,) = violations(one("EAGLE3", 3, 1), study)
    assert violation.rule == "draft_model_missing"
    assert violations(one("EAGLE", 3, 1), study) == ()


def test_every_rule_has_been_broken():
    broken = {rule for rule, *_ in (*BROKEN.values(), *MORE.values())} | {"draft_model_missing"}
    assert {rule.name for rule in RULES} == broken


@pytest.mark.parametrize("backend", ["flashinfer", "fa3", "triton", None])
def test_paged_trees_run_where_they_can(make_study, backend):
    study = make_study(server={"flags": {"page-size": 64, "attention-backend": backend}})
    assert violations(one("EAGLE3", 3, 2, 4), study) == ()


def test_searched_flags_count_like_fixed_ones(make_study):
    space = {
        "speculation": [{"algorithm": "EAGLE3", "num_steps": 3, "topk": 2, "num_draft_tokens": 4}],
        "flags": {"attention-backend": ["trtllm_mha", "fa3"]},
    }
    study = make_study(space=space)
    bad = one("EAGLE3", 3, 2, 4, flags={"attention-backend": "trtllm_mha"})
    assert [v.rule for v in violations(bad, study)] == ["trtllm_mha_chain_only"]
    assert not violations(one("EAGLE3", 3, 2, 4, flags={"attention-backend": "fa3"}), study)


FIXED = {
    "flags": {"tp-size": 8, "attention-backend": "trtllm_mha", "enable-x": True},
    "env": {"A": "1", "B": None},
}


def test_a_configuration_takes_fixed_flags_and_variables_away(make_study):
    study = make_study(server=FIXED)
    tree = one("EAGLE3", 3, 2, 4)
    assert [v.rule for v in violations(tree, study)] == ["trtllm_mha_chain_only"]
    without = one("EAGLE3", 3, 2, 4, flags={"attention-backend": None, "tp": None}, env={"A": None})
    found = canonical(without, study)
    assert violations(without, study) == ()
    assert found.flags == (("attention-backend", None), ("tp-size", None))
    assert found.env == (("A", None),)
    assert found.draft_tp == 1
    assert canonical(found, study) == found


def test_what_is_fixed_anyway_is_left_out(make_study):
    """One server has one form, however much of what the study fixes is said once more."""
    study = make_study(server=FIXED)
    plain = canonical(one("EAGLE3", 3, 1), study)
    flags = {"tp_size": "8", "--attention-backend": "trtllm_mha", "enable-x": True, "y": None}
    said = one("EAGLE3", 3, 1, flags=flags | {"z": False}, env={"A": "1", "B": None})
    assert canonical(said, study) == plain
    other = one("EAGLE3", 3, 1, flags={"enable-x": 1, "z": 3}, env={"A": "2", "B": "", "C": None})
    found = canonical(other, study)
    # 1 is no switch; and C, which a caller may have set, is taken away.
    assert found.flags == (("enable-x", 1), ("z", 3))
    assert found.env == (("A", "2"), ("B", ""), ("C", None))
    assert canonical(found, study) == found


def test_adaptive_stays_where_what_drops_it_is_taken_away(make_study):
    server = {"flags": {"tp-size": 8, "enable-pdmux": True}}
    study = make_study(server=server)
    dropped = one("EAGLE3", 3, 1, flags={"speculative-adaptive": True})
    kept = one("EAGLE3", 3, 1, flags={"speculative-adaptive": True, "enable-pdmux": None})
    assert canonical(dropped, study) == canonical(one("EAGLE3", 3, 1), study)
    assert dict(canonical(kept, study).flags)["speculative-adaptive"] is True
