"""Rules one by one: what breaks each, and a neighbour that is legal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.configuration import Configuration, Speculation
from search_spaces.rules import RULES
from search_spaces.rules.legality import canonical, violations
from search_spaces.rules.rule import Candidate
from search_spaces.space.space import Space

from ...examples import examples
from ..recorder import Recorder


def one(algorithm="none", steps=None, topk=None, tokens=None, **other):
    return Configuration.of(Speculation(algorithm, steps, topk, tokens), **other)


SOURCES = ("SGLang 0.5.23, arg_groups/", "SGLang 0.5.23, not checked", "NCCL 2.30.7, src/")
UNCHECKED = {"memory_fraction", "running_requests"}
"""Rules of what SGLang's own checks let pass, and dies of later."""

CHAIN = ("EAGLE3", 3, 1)
PIPELINE = {"pp-size": 2}
WINDOW = "speculative-draft-window-size"
SINK = "speculative-draft-sink-size"
CORPUS = {
    "speculative-ngram-external-corpus-path": "corpus.txt",
    "speculative-ngram-external-sam-budget": 8,
}
REJECTION = {"speculative-use-rejection-sampling": True}
BLOCK = {"speculative-use-block-verification": True}
THRESHOLD = {"speculative-accept-threshold-single": 0.5}

# rule, configuration, flags of both, a neighbour that is legal
BROKEN = {
    "a tree on a backend of larger pages": (
        "paged_tree_backend",
        one("EAGLE3", 3, 2, 4),
        {"attention-backend": "trtllm_mla"},
        one(*CHAIN),
    ),
    "chunks of larger pages": (
        "chunk_divides_into_pages",
        one(flags={"page-size": 16}),
        {"decode-attention-backend": "flashmla", "chunked-prefill-size": 1040},
        one(flags={"page-size": 16, "decode-attention-backend": "fa3"}),
    ),
    "EAGLE in a pipeline": (
        "pipeline_parallel",
        one("EAGLE", 3, 1),
        PIPELINE,
        one("EAGLE", 3, 1, env={"SGLANG_ENABLE_PP_SPEC": "1"}),
    ),
    "EAGLE in a pipeline, relayed, adaptive": (
        "pipeline_parallel",
        one(
            "EAGLE",
            3,
            1,
            env={"SGLANG_ENABLE_PP_SPEC": "1"},
            flags={"speculative-adaptive": True},
        ),
        PIPELINE,
        one("EAGLE", 3, 1, flags={"disaggregation-mode": "prefill"}),
    ),
    "a block with data-parallel attention": (
        "attention_dp_head",
        one("DFLASH", tokens=8),
        {"attn-dp-size": 2},
        one("DFLASH", tokens=8, flags={"enable-dp-lm-head": True}),
    ),
    "no window": ("draft_window", one(*CHAIN), {WINDOW: 0}, one(*CHAIN, flags={WINDOW: 64})),
    "a negative sink": (
        "draft_window",
        one(*CHAIN),
        {WINDOW: 64, SINK: -1},
        one(*CHAIN, flags={SINK: 4}),
    ),
    "a sink without a window": (
        "draft_window",
        one(*CHAIN),
        {SINK: 4},
        one(*CHAIN, flags={WINDOW: 64}),
    ),
    "a window smaller than the block": (
        "draft_window",
        one("DFLASH", tokens=16),
        {WINDOW: 8},
        one("DFLASH", tokens=8),
    ),
    "a corpus without budget": (
        "ngram_corpus",
        one("NGRAM", tokens=12),
        {"speculative-ngram-external-corpus-path": "corpus.txt"},
        one("NGRAM", tokens=12, flags=CORPUS),
    ),
    "a budget above the tokens": (
        "ngram_corpus",
        one("NGRAM", tokens=8),
        CORPUS,
        one("NGRAM", tokens=9),
    ),
    "a corpus of no tokens": (
        "ngram_corpus",
        one("NGRAM", tokens=9),
        CORPUS | {"speculative-ngram-external-corpus-max-tokens": 0},
        one(*CHAIN),
    ),
    "flex attention": (
        "flex_attention",
        one(*CHAIN),
        {"attention-backend": "flex_attention"},
        one(),
    ),
    "a tree in linear attention's replay": (
        "linear_replay_chain",
        one("EAGLE3", 3, 2, 4),
        {"enable-linear-replayssm-spec": True},
        one(*CHAIN),
    ),
    "thresholds with rejection sampling": (
        "rejection_sampling",
        one(*CHAIN),
        REJECTION | THRESHOLD,
        one("NGRAM", tokens=8),
    ),
    "thresholds with block verification": (
        "block_verification",
        one(*CHAIN),
        BLOCK | {"speculative-accept-threshold-acc": 0.5},
        one("DFLASH", tokens=8),
    ),
    "block verification on a CPU": (
        "block_verification",
        one(*CHAIN),
        BLOCK | {"device": "cpu"},
        one(*CHAIN, flags={"device": "cuda"}),
    ),
    "nodes": ("whole_nodes", one(), {"nnodes": 3}, one(flags={"pp-size": 3})),
    "attention's replicas": (
        "attention_dp_size",
        one(),
        {"attn-dp-size": 3},
        one(flags={"attn-dp-size": 4}),
    ),
    "attention's replicas beside replicas": (
        "attention_dp_size",
        one(),
        {"attn-dp-size": 2, "dp-size": 2},
        one(flags={"dp-size": 1}),
    ),
    "attention's replicas in the old spelling": (
        "attention_dp_size",
        one(),
        {"enable-dp-attention": True, "dp-size": 3},
        one(flags={"dp-size": 2}),
    ),
    "no replica": ("attention_dp_size", one(), {"attn-dp-size": 0}, one(flags={"attn-dp-size": 1})),
    "replicas of experts": (
        "moe_dp_size",
        one(),
        {"moe-dp-size": 2, "attn-cp-size": 2, "ep-size": 2},
        one(flags={"ep-size": 4}),
    ),
    "replicas of experts in a pipeline": (
        "moe_dp_size",
        one(),
        {"moe-dp-size": 2, "attn-cp-size": 2, "pp-size": 2},
        one(flags={"pp-size": 1}),
    ),
    "replicas of experts alone": (
        "moe_dp_size",
        one(),
        {"moe-dp-size": 2},
        one(flags={"attn-cp-size": 2}),
    ),
    "dense layers": (
        "moe_dense_tp_size",
        one(),
        {"moe-dense-tp-size": 2},
        one(flags={"moe-dense-tp-size": 1}),
    ),
    "half the experts": (
        "moe_runner_experts",
        one(),
        {"moe-runner-backend": "flashinfer_cutlass", "ep-size": 4},
        one(flags={"ep-size": 8}),
    ),
    "two batches": (
        "two_batch_overlap",
        one(),
        {"enable-two-batch-overlap": True},
        one(flags={"moe-a2a-backend": "deepep"}),
    ),
    "padding compiled": (
        "compiled_padding",
        one(),
        {"disable-cuda-graph-padding": True, "enable-torch-compile": True},
        one(flags={"enable-torch-compile": None}),
    ),
    "priorities": (
        "priorities",
        one(),
        {"enable-priority-scheduling": True, "schedule-policy": "lpm"},
        one(flags={"schedule-policy": "fcfs"}),
    ),
    "retraction by priority": (
        "priorities",
        one(),
        {"retraction-policy": "priority"},
        one(flags={"enable-priority-scheduling": True}),
    ),
    "no conservativeness": (
        "conservativeness",
        one(),
        {"schedule-conservativeness": -0.5},
        one(flags={"schedule-conservativeness": 0.5}),
    ),
    "no memory": (
        "memory_fraction",
        one(),
        {"mem-fraction-static": 0},
        one(flags={"mem-fraction-static": 0.5}),
    ),
    "more than all memory": (
        "memory_fraction",
        one(*CHAIN),
        {"mem-fraction-static": 1.5},
        one(*CHAIN, flags={"mem-fraction-static": 1}),
    ),
    "no request at a time": (
        "running_requests",
        one(),
        {"max-running-requests": 0},
        one(flags={"max-running-requests": 1}),
    ),
    "channels": (
        "nccl_bounds",
        one(env={"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "8"}),
        {},
        one(env={"NCCL_MIN_NCHANNELS": "8", "NCCL_MAX_NCHANNELS": "8"}),
    ),
    "channels and blocks": (
        "nccl_bounds",
        one(env={"NCCL_MIN_CTAS": "16", "NCCL_MAX_NRINGS": "8"}),
        {},
        one(env={"NCCL_MIN_CTAS": "16", "NCCL_MAX_NRINGS": "8", "NCCL_MAX_NCHANNELS": "32"}),
    ),
    "no protocol for the algorithm": (
        "nccl_nothing_left",
        one(env={"NCCL_ALGO": "allreduce:nvls", "NCCL_PROTO": "LL"}),
        {},
        one(env={"NCCL_ALGO": "allreduce:nvls", "NCCL_PROTO": "LL;allreduce:Simple"}),
    ),
}


def with_flags(configuration, flags):
    return Configuration.of(
        configuration.speculation,
        flags={**flags, **dict(configuration.flags)},
        env=dict(configuration.env),
    )


@pytest.mark.parametrize(("rule", "bad", "flags", "good"), BROKEN.values(), ids=BROKEN.keys())
def test_what_breaks_a_rule_is_illegal_by_its_name(make_study, rule, bad, flags, good):
    study = make_study()
    (violation,) = violations(with_flags(bad, flags), study)
    assert violation.rule == rule
    assert violation.source.startswith(SOURCES)
    assert violations(with_flags(good, flags), study) == ()


def test_every_rule_is_named_once():
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)


FLAGS = {
    "attention-backend": ["fa3", "flashinfer", "flashmla", "trtllm_mha", "flex_attention"],
    "device": ["cpu", "cuda"],
    "disaggregation-mode": ["null", "prefill"],
    "moe-a2a-backend": ["none", "deepep"],
    "moe-runner-backend": ["auto", "flashinfer_cutlass"],
    "retraction-policy": ["priority"],
    "schedule-policy": ["fcfs", "lpm"],
    "speculative-ngram-external-corpus-path": ["corpus.txt"],
}
VALUES = {name: st.sampled_from(values) for name, values in FLAGS.items()}
NUMBERS = st.sampled_from([1, 2, 3, 8, 16, 100])
KNOWN = st.fixed_dictionaries(
    {},
    optional={
        name: VALUES.get(
            name, NUMBERS if "size" in name or name == "nnodes" else st.just(value=True)
        )
        for name in sorted(
            {name for _, _, flags, _ in BROKEN.values() for name in flags} | FLAGS.keys()
        )
    },
)
CHANNELS = st.sampled_from(["1", "8", "64"])
ENV = st.fixed_dictionaries(
    {},
    optional={
        name: {
            "NCCL_ALGO": st.sampled_from(["ring,tree", "allreduce:nvls"]),
            "NCCL_PROTO": st.sampled_from(["LL", "LL,Simple"]),
            "SGLANG_ENABLE_PP_SPEC": st.sampled_from(["0", "1"]),
        }.get(name, CHANNELS)
        for name in sorted(frozenset[str]().union(*(rule.env for rule in RULES)))
    },
)
ALGORITHM = st.sampled_from(["none", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "DFLASH", "DSPARK"])
SHAPE = st.sampled_from([(3, 1, 4), (3, 2, 4), (None, None, 4), (None, None, None)])


@settings(max_examples=examples(100), deadline=None)
@given(ALGORITHM, SHAPE, KNOWN, ENV)
def test_rules_read_only_the_variables_that_they_declare(algorithm, shape, flags, env):
    for rule in RULES:
        server = Candidate(Speculation(algorithm, *shape), 1, Recorder(flags), Recorder(env))
        message = rule.check(server)
        assert message is None or message
        assert server.env.asked <= rule.env
        if not rule.server:
            other = Candidate(Speculation(), None, {}, env)
            assert rule.check(other) == message


def test_what_sglang_writes_in_place_of_a_flag_is_one_point(make_study):
    parts = [
        {"algorithm": "none"},
        {"algorithm": "STANDALONE", "num_steps": 3, "topk": 1},
        {"algorithm": "EAGLE3", "num_steps": 3, "topk": 1},
    ]
    flags = {"attention-backend": ["fa3", "flashmla"], "page-size": [None, 16, 64]}
    study = make_study(space={"speculation": parts[:1], "flags": flags})
    space = Space(study)
    found = {tuple(dict(p.flags).values()) for p in space}
    assert found == {("fa3", None), ("fa3", 16), ("fa3", 64), ("flashmla", 64)}
    for point in space:
        assert canonical(point, study) == point
        assert space.assignments(point)
    study = make_study(space={"speculation": parts, "flags": {"enable-mixed-chunk": [None, True]}})
    mixed = {(p.speculation.algorithm, dict(p.flags)["enable-mixed-chunk"]) for p in Space(study)}
    assert mixed == {
        ("none", None),
        ("none", True),
        ("STANDALONE", None),
        ("EAGLE3", None),
        ("EAGLE3", True),
    }
