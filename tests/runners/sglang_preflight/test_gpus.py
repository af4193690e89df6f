from __future__ import annotations

import pytest

from runners.sglang.preflight.gpus import GPUS, gpu_named, gpu_to_pretend
from runners.sglang.preflight.inside import facts_of
from search_spaces.study_file.load import load_study


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("h200", "NVIDIA H200"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell"),
        ("rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell"),
        ("AMD Instinct MI300X", None),
        ("nvidia", None),
        ("", None),
    ],
)
def test_names_that_are_meant(name, known):
    found = gpu_named(name)
    assert (found.name if found else None) == known


def test_what_is_pretended():
    study = load_study("llama-8b")
    assert gpu_to_pretend(study, gpus_here=1, named=["h200"]) is None
    assert gpu_to_pretend(study, gpus_here=0, named=["MI300X", "b200"]) == gpu_named("b200")
    assert gpu_to_pretend(study, gpus_here=0) == GPUS[0]
    assert gpu_to_pretend(load_study("tiny"), gpus_here=0, named=["h200"]) is None


def test_one_architecture_at_a_time():
    for gpu in GPUS:
        facts = facts_of(gpu.capability)
        kinds = [facts["is_sm90"], facts["is_sm100"], facts["is_sm120"]]
        assert sum(kinds) == (1 if gpu.capability >= (9, 0) else 0), gpu.name
        assert facts["is_blackwell"] is (gpu.capability >= (10, 0))
