"""Where NCCL's variables are no knobs: what flags, sizes and objectives leave of it."""

from __future__ import annotations

import json

import pytest

from search_spaces.configuration import Configuration, Speculation
from search_spaces.nccl.all_reduce import (
    MIB,
    OWN_OFF,
    V1_BYTES,
    V2_BYTES,
    OwnKernel,
    carries_decoding,
    hidden_size,
    may_have_own_kernel,
    nccl_knobs,
    scope,
    token_bytes,
    without_nccl,
)
from search_spaces.space.space import Space

V2 = OwnKernel("custom all-reduce v2", V2_BYTES)
PROTO = {"NCCL_PROTO": [None, "LL"]}
CHAIN = Configuration.of(Speculation("EAGLE3", 3, 1, 4), draft_tp=2)
TTFT = {"objective": {"maximize": "output_tok_s", "subject_to": {"ttft_p95_ms": 500}}}


@pytest.fixture
def two_gpus(make_study):
    def make(flags=None, points=None, space=None, **other):
        return make_study(
            server={"flags": {"tp-size": 2, "max-running-requests": 64} | (flags or {})},
            space={"speculation": [{"algorithm": "none"}], "env": PROTO} | (space or {}),
            workload={
                "prompts": {"chat": 1},
                "output_tokens": 64,
                "points": points or [{"concurrency": 1}],
            },
            **other,
        )

    return make


@pytest.mark.parametrize(
    ("flags", "may"),
    [
        ({}, True),
        ({"tp-size": 1}, False),
        ({OWN_OFF: True}, False),
        ({OWN_OFF: False}, True),
        ({"enable-deterministic-inference": True}, False),  # SGLang switches it off
        ({"enable-mscclpp": True}, False),
        ({"enable-symm-mem": True}, False),
        ({"enable-torch-symm-mem": True}, True),  # asked after the own kernel
        ({"pp-size": 2}, False),
        ({"nnodes": 2}, False),
        ({"enable-dp-attention": True, "dp-size": 2}, False),
        ({"moe-a2a-backend": "deepep"}, False),
        ({"device": "cpu"}, False),
    ],
)
def test_flags_that_leave_decoding_to_the_own_kernel(two_gpus, flags, may):
    study = two_gpus(flags)
    assert may_have_own_kernel(study, Configuration.of()) is may
    assert carries_decoding(study, Configuration.of(), V2) is may


def test_a_draft_placed_apart_has_groups_of_its_own(two_gpus):
    study = two_gpus()
    assert may_have_own_kernel(study, CHAIN)
    apart = Configuration.of(CHAIN.speculation, draft_tp=1)
    assert not may_have_own_kernel(study, apart)


def test_a_configurations_own_flag_counts_before_the_studys(two_gpus):
    study = two_gpus({OWN_OFF: True})
    assert may_have_own_kernel(study, Configuration.of(flags={OWN_OFF: None}))
    study = two_gpus()
    assert not may_have_own_kernel(study, Configuration.of(flags={OWN_OFF: True}))


@pytest.mark.parametrize(
    ("points", "most", "tokens"),
    [
        ([{"concurrency": 1}], 64, 4),
        ([{"concurrency": 1}, {"concurrency": 8}], 64, 32),
        ([{"concurrency": 5}], 64, 32),  # padded to a captured batch of 8
        ([{"concurrency": 256}], 64, 256),  # more wait than run
        ([{"request_rate": 2.0}], 64, 256),
        ([{"request_rate": 2.0}], None, None),
        ([{"concurrency": 256}], None, 1024),
    ],
)
def test_the_largest_all_reduce_of_decoding_is_within_the_limit(two_gpus, points, most, tokens):
    """4 tokens a request; the limit is set to just what is needed, and to one byte less."""
    open_loop = {"objective": {"minimize": "tpot_p50_ms"}} if "request_rate" in points[0] else {}
    study = two_gpus({"max-running-requests": most}, points, **open_loop)
    if tokens is None:
        assert not carries_decoding(study, CHAIN, V2)
        return
    needed = tokens * token_bytes(study)
    assert carries_decoding(study, CHAIN, OwnKernel("exact", needed))
    assert not carries_decoding(study, CHAIN, OwnKernel("short", needed - 1))


def test_adaptive_speculation_and_blocks_of_unknown_size(two_gpus):
    study = two_gpus(points=[{"concurrency": 1}])
    adaptive = Configuration.of(CHAIN.speculation, draft_tp=2, flags={"speculative-adaptive": True})
    most = 16 * token_bytes(study)
    assert carries_decoding(study, adaptive, OwnKernel("k", most))
    assert not carries_decoding(study, adaptive, OwnKernel("k", most - 1))
    block = Configuration.of(Speculation("DFLASH", 1, 1, None), draft_tp=2)
    assert not carries_decoding(study, block, V2)


def test_hidden_size_is_the_models_own_where_it_lies_here(two_gpus, tmp_path):
    assert hidden_size("somewhere/else") is None
    assert token_bytes(two_gpus()) == 2 * 16384  # the widest known: never too little
    for name, config in (("a", {"hidden_size": 512}), ("b", {"text_config": {"hidden_size": 64}})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    study = two_gpus(model={"path": str(tmp_path / "a")})
    assert token_bytes(study) == 1024
    assert token_bytes(two_gpus({"dtype": "float32"}, model={"path": str(tmp_path / "a")})) == 2048
    assert hidden_size(str(tmp_path / "b")) == 64


def test_prefills_above_the_limit_are_nccls_so_ttft_keeps_its_knobs(two_gpus):
    plain = Configuration.of()
    assert not carries_decoding(two_gpus(**TTFT), plain, V2)
    assert not carries_decoding(two_gpus(objective={"minimize": "ttft_p50_ms"}), plain, V2)
    assert carries_decoding(two_gpus(objective={"minimize": "tpot_p50_ms"}), plain, V2)
    # 512 tokens of the widest model are 16 MiB
    assert carries_decoding(two_gpus({"chunked-prefill-size": 512}, **TTFT), plain, V2)
    assert not carries_decoding(two_gpus({"chunked-prefill-size": 513}, **TTFT), plain, V2)
    older = OwnKernel("custom all-reduce", V1_BYTES)
    assert not carries_decoding(two_gpus({"chunked-prefill-size": 512}, **TTFT), plain, older)


def test_only_nccls_variables_are_taken_away(two_gpus):
    env = {"NCCL_PROTO": "LL", "NCCL_P2P_DISABLE": "1", "SGLANG_X": "1", "OMP_NUM_THREADS": "2"}
    bare = without_nccl(Configuration.of(env=env))
    assert dict(bare.env) == env | {"NCCL_PROTO": None, "NCCL_P2P_DISABLE": None}
    assert without_nccl(bare) == bare
    assert nccl_knobs(two_gpus()) == ("NCCL_PROTO",)
    assert nccl_knobs(two_gpus(space={"env": {"NCCL_PROTO": ["LL"], "OMP_X": ["1", "2"]}})) == ()


def test_one_scope_for_all_that_share_the_kernel(two_gpus):
    study = two_gpus(space={"flags": {OWN_OFF: [None, True], "page-size": [1, 64]}})
    scopes = {}
    for point in Space(study):
        scopes.setdefault(scope(study, point), set()).add(dict(point.flags)[OWN_OFF])
    assert list(scopes.values()) == [{None}, {True}]
    env = {"SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2": "0"}
    other = Configuration.of(env=env)
    assert scope(study, other) != scope(study, Configuration.of())
    assert V2_BYTES == 2 * V1_BYTES == 16 * MIB
