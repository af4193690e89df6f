"""What must be known before a configuration serves."""

from __future__ import annotations

import pytest

from search_spaces.configuration import Configuration, Speculation
from search_spaces.safety_warnings import safety_warnings
from search_spaces.study_file.load import parse_study

EAGLE = Speculation("EAGLE3", 2, 1, 3)


def study_of(flags="tp-size: 2", env=""):
    return parse_study(
        "study: s\nmodel: {path: org/model, draft: org/draft}\n"
        f"server: {{flags: {{{flags}}}, env: {{{env}}}}}\n"
        "space: {speculation: [{algorithm: none}, {algorithm: EAGLE3}]}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 8}\nbudget: {launches: 1}\n",
        "s",
    )


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"NCCL_PROTO": "LL,LL128,Simple"}, ["NCCL_PROTO=LL,LL128,Simple forces LL128 on"]),
        ({"NCCL_PROTO": "LL128"}, ["NCCL_PROTO=LL128 forces LL128 on"]),
        ({"NCCL_PROTO": "LL,Simple;allreduce:LL128"}, ["forces LL128 on"]),
        ({"NCCL_PROTO": "^LL128"}, []),
        ({"NCCL_PROTO": "Simple"}, []),
        ({"NCCL_PROTO": None}, []),
        ({"NCCL_P2P_LEVEL": "SYS"}, ["NCCL_P2P_LEVEL=SYS", "hangs some hosts"]),
        ({"NCCL_P2P_LEVEL": "PHB"}, []),
    ],
)
def test_risky_nccl_settings_give_warnings(env, told):
    found = safety_warnings(Configuration.of(EAGLE, env=env), study_of())
    assert len(found) == bool(told)
    assert all(part in found[0] for part in told)


def test_fixed_variables_count_unless_a_configuration_removes_them():
    study = study_of(env="NCCL_PROTO: LL128")
    assert len(safety_warnings(Configuration.of(EAGLE), study)) == 1
    assert not safety_warnings(Configuration.of(EAGLE, env={"NCCL_PROTO": None}), study)


def test_thresholds_that_change_answers():
    study = study_of("tp-size: 2, speculative-accept-threshold-single: 0.5")
    [caution] = safety_warnings(Configuration.of(EAGLE), study)
    assert "--speculative-accept-threshold-single 0.5" in caution
    assert not safety_warnings(Configuration.of(), study), "nothing is drafted"
    other = Configuration.of(EAGLE, flags={"speculative-accept-threshold-single": 1.0})
    assert not safety_warnings(other, study)
