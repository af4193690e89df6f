from __future__ import annotations

import pytest

from search_spaces.problems import StudyFileError
from search_spaces.sglang_variables import canonical_value, kinds, unknown_variable, value_problem
from search_spaces.study_file.warnings import warnings

IPC = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (IPC, "on", "would use its default; write 1 or 0"),
        (IPC, "2", "write 1 or 0"),
        (IPC, "", "write 1 or 0"),
        ("SGLANG_PCIE_IPC_MAX_NUMEL", "1M", "write a whole number"),
        ("SGLANG_SIMULATE_ACC_LEN", "three", "write a number"),
    ],
)
def test_values_that_sglang_cannot_parse_are_refused(name, value, says):
    assert says in value_problem(name, value)
    assert canonical_value(name, value) == value


@pytest.mark.parametrize(
    ("name", "value", "one"),
    [
        (IPC, "TRUE", "1"),
        (IPC, "yes", "1"),
        (IPC, "n", "0"),
        ("SGLANG_PCIE_IPC_MAX_NUMEL", "1024", "1024"),
        ("SGLANG_SIMULATE_ACC_LEN", "1e1", "1e1"),
        ("SGLANG_OF_TOMORROW", "yes", "yes"),
        ("OTHER", "yes", "yes"),
    ],
)
def test_canonical_values(name, value, one):
    assert value_problem(name, value) is None
    assert value_problem(name, None) is None
    assert canonical_value(name, value) == one


def test_names():
    assert len(kinds()) > 1000
    assert not [name for name in kinds() if unknown_variable(name)]
    assert unknown_variable("OMP_NUM_THREADS") is None
    assert f"did you mean `{IPC}`?" in unknown_variable("SGLANG_ENABLE_PCIE_IPC_ALREDUCE")
    assert "ignores it silently" in unknown_variable("SGLANG_XYZZY_PLUGH_FROTZ")


def test_variables_of_a_study_are_checked(make_study):
    space = {"speculation": [{"algorithm": "none"}]}
    study = make_study(space=space | {"env": {IPC: [None, "true"], "SGLANG_TYPO_ED": ["a"]}})
    assert study.space.env[IPC] == (None, "1")
    assert any("space.env.SGLANG_TYPO_ED: SGLang 0.5.23 does" in w for w in warnings(study))
    with pytest.raises(StudyFileError, match=r"\[1\]: SGLang cannot parse 'on'"):
        make_study(space=space | {"env": {IPC: [None, "on"]}})
    with pytest.raises(StudyFileError, match=r"Same value as choice 1 \(1\)"):
        make_study(space=space | {"env": {IPC: ["1", "yes"]}})


def test_variables_of_production_give_warnings(make_study):
    command = (
        "NCCL_MIN_NCHANNELS=16 NCCL_MAX_NCHANNELS=8 NCCL_P2P_LEVEL=sys NCCL_PROTOO=LL "
        f"{IPC}=on python -m sglang.launch_server --model-path org/target"
    )
    told = "\n".join(warnings(make_study(production={"command": command})))
    for says in (
        "NCCL_P2P_LEVEL: NCCL knows it in capitals only",
        "NCCL_PROTOO: NCCL 2.30.7 does not read this variable",
        f"{IPC}: SGLang cannot parse 'on'",
        "NCCL_MIN_NCHANNELS 16 is more than NCCL_MAX_NCHANNELS 8",
    ):
        assert f"production.command: {says}" in told
