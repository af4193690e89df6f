"""Advice on who carries the all-reduces of decoding."""

from __future__ import annotations

import pytest

from search_spaces.nccl.all_reduce import OWN_OFF, PCIE_IPC, advice

PROTO = {"NCCL_PROTO": [None, "LL"]}


@pytest.fixture
def told(make_study):
    def ask(flags=None, env=None, fixed=None, space=None):
        study = make_study(
            server={"flags": flags or {}, "env": fixed or {}},
            space={"speculation": [{"algorithm": "none"}], "env": env or {}} | (space or {}),
        )
        return list(advice(study))

    return ask


OFF = {OWN_OFF: True}
P2P_OFF = {"NCCL_P2P_DISABLE": [None, "1"]}
IPC = {PCIE_IPC: "1"}
IPC_CHOSEN = {PCIE_IPC: [None, "1"]}
UNSET_BESIDE_IPC = [{"when": {"env": IPC}, "then": {"env": {"NCCL_PROTO": None}}}]
OFF_BESIDE_P2P = [{"when": {"env": {"NCCL_P2P_DISABLE": "1"}}, "then": {"flags": OFF}}]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"env": PROTO}, "NCCL_PROTO is searched at tp-size 1, where nothing is reduced"),
        (
            {"env": PROTO | {"NCCL_MIN_NCHANNELS": [None, 8]}},
            "NCCL_PROTO and NCCL_MIN_NCHANNELS are searched at tp-size 1",
        ),
        (
            {"flags": {"tp-size": 2}, "env": PROTO},
            "on if the two GPUs have peer access. If the kernel is on here, these points are",
        ),
        ({"flags": {"tp-size": 8}, "env": PROTO}, "if NVLink connects all GPUs"),
        (
            {"flags": {"tp-size": 8, "enable-mscclpp": True} | OFF, "env": PROTO},
            "with enable-mscclpp MSCCL++ carries small all-reduces, not NCCL",
        ),
        (
            {"flags": {"tp-size": 8} | OFF, "env": PROTO, "fixed": IPC},
            "but FlashInfer's kernel runs decoding",
        ),
        (
            {"flags": {"tp-size": 8} | OFF, "env": PROTO | IPC_CHOSEN},
            "then: {env: {NCCL_PROTO: null}}",
        ),
        ({"flags": {"tp-size": 6} | OFF, "fixed": IPC}, "runs at tp-size 2, 4 or 8 only"),
        (
            {
                "flags": {"tp-size": 8, "enable-deterministic-inference": True} | OFF,
                "fixed": IPC,
            },
            "enable-deterministic-inference disables it",
        ),
        ({"flags": {"tp-size": 2}, "fixed": IPC}, "has no effect at tp-size 2 with peer access"),
        (
            {"flags": {"tp-size": 2, OWN_OFF: None}, "fixed": {"NCCL_P2P_DISABLE": "1"}},
            "was seen to hang where NCCL needs it off",
        ),
        (
            {
                "flags": {"tp-size": 8, "enable-deterministic-inference": True} | OFF,
                "fixed": {"NCCL_ALGO": "ring"},
            },
            "NCCL_ALGO has no effect: with enable-deterministic-inference",
        ),
        (
            {"flags": {"tp-size": 8, "enable-symm-mem": True}, "fixed": {"NCCL_CUMEM_ENABLE": "0"}},
            "NCCL_CUMEM_ENABLE has no effect: with enable-symm-mem",
        ),
        (
            {"fixed": {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}},
            "SGLang 0.5.23 sets it to 8 in every server",
        ),
    ],
)
def test_what_is_worth_a_word(told, given, says):
    (sentence,) = told(**given)
    assert says in sentence


def test_p2p_off_at_two_gpus_is_told_beside_what_it_is_searched_with(told):
    first, second = told(flags={"tp-size": 2}, env=P2P_OFF)
    assert "NCCL_P2P_DISABLE is searched" in first
    assert 'when: {env: {NCCL_P2P_DISABLE: "1"}}' in second


@pytest.mark.parametrize(
    "given",
    [
        {"flags": {"tp-size": 8} | OFF, "env": PROTO},
        {"flags": {"tp-size": 3}, "env": PROTO},
        {"flags": {"tp-size": 8}, "env": PROTO, "space": {"flags": {OWN_OFF: [None, True]}}},
        {
            "flags": {"tp-size": 8} | OFF,
            "env": PROTO | IPC_CHOSEN,
            "space": {"conditions": UNSET_BESIDE_IPC},
        },
        {
            "flags": {"tp-size": 2},
            "env": P2P_OFF,
            "space": {"conditions": OFF_BESIDE_P2P, "flags": {OWN_OFF: [None, True]}},
        },
        {"flags": {"pp-size": 2}, "env": PROTO},
        {"env": {"NCCL_DEBUG": [None, "WARN"]}},
        {"flags": {"tp-size": 8}, "env": {"OMP_NUM_THREADS": ["1", "2"]}},
        {"flags": {"tp-size": 8}, "fixed": {"NCCL_PROTO": "LL"}},
    ],
)
def test_what_is_not(told, given):
    assert told(**given) == []
