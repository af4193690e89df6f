"""Configurations and loads as they are named on the command line of the noise benchmark."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.noise.study import UsageError, configuration_of, is_of, label, study_of
from search_spaces.study_file.load import parse_study

STUDY = """\
study: given-lengths
simulated_acceptance: true
model: {path: models/target, draft: models/draft, family: llama}
space:
  speculation:
    - algorithm: none
    - {algorithm: EAGLE3, num_steps: [1, 2, 3], topk: [1, 2], num_draft_tokens: [4]}
  env:
    SGLANG_SIMULATE_ACC_LEN: [null, "1.75", "2.3"]
  conditions:
    - {when: {algorithm: none}, then: {env: {SGLANG_SIMULATE_ACC_LEN: null}}}
    - {when: {num_steps: 1}, then: {env: {SGLANG_SIMULATE_ACC_LEN: "1.75"}}}
    - {when: {num_steps: 2}, then: {env: {SGLANG_SIMULATE_ACC_LEN: ["1.75", "2.3"]}}}
workload: {prompts: {chat: 1}, output_tokens: 128, requests: 8, points: [{concurrency: 1}]}
budget: {launches: 4}
"""


@pytest.fixture
def study():
    return parse_study(STUDY, "given-lengths")


@pytest.mark.parametrize(
    ("text", "labelled"),
    [
        ("none", "none"),
        ("default", "EAGLE3 5/4/8"),
        # The space has one point with it.
        ("EAGLE3:1", "EAGLE3 1/1/2 SGLANG_SIMULATE_ACC_LEN=1.75"),
        ("eagle3:2 SGLANG_SIMULATE_ACC_LEN=2.3", "EAGLE3 2/1/3 SGLANG_SIMULATE_ACC_LEN=2.3"),
        # Several, one of which sets nothing.
        ("EAGLE3:3", "EAGLE3 3/1/4"),
        ("EAGLE3:3,2,4", "EAGLE3 3/2/4"),
        # None, which is no hindrance.
        ("EAGLE3:7", "EAGLE3 7/1/8"),
        ("EAGLE3:3 NCCL_PROTO=LL128", "EAGLE3 3/1/4 NCCL_PROTO=LL128"),
        (
            '{"speculation": {"algorithm": "EAGLE3", "num_steps": 1, "topk": 1}}',
            "EAGLE3 1/1/2",
        ),
    ],
)
def test_configurations_in_short(study, text, labelled):
    assert label(configuration_of(text, study)) == labelled


def test_what_the_study_would_not_measure_is_known(study):
    of = {
        text: is_of(configuration_of(text, study), study)
        for text in ("none", "default", "EAGLE3:1", "EAGLE3:7")
    }
    assert of == {"none": True, "default": True, "EAGLE3:1": True, "EAGLE3:7": False}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("EAGLE3:2", "2 such points"),
        ("EAGLE3", "ALGORITHM:steps,topk,tokens"),
        ("EAGLE3:1,2,3,4", "ALGORITHM:steps,topk,tokens"),
        ("EAGLE3:2 LL128", "NAME=VALUE"),
        ("{nonsense", "or JSON"),
        ("EAGLE3:2,1,3 ''", "NAME=VALUE"),
        ("EAGLE3:2,4,99", "--configuration EAGLE3:2,4,99"),
        ("", "write one of none, default"),
    ],
)
def test_what_cannot_be_read_or_run_is_said(study, text, words):
    with pytest.raises(UsageError, match=words):
        configuration_of(text, study)


def named(path, **load):
    unset = dict.fromkeys(("concurrency", "requests", "output_tokens", "output_spread"))
    return argparse.Namespace(study=str(path), **(unset | load))


def test_the_load_of_the_command_line_goes_before_the_studys(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(STUDY)
    workload = study_of(named(path)).to_workload()
    assert (workload.output_tokens, workload.output_spread) == (128, 0.5)
    workload = study_of(named(path, output_spread=0.0)).to_workload()
    assert (workload.output_tokens, workload.output_spread) == (128, 0.0)
    study = study_of(named(path, concurrency=[1, 8], requests=6, output_tokens=64))
    workload = study.to_workload()
    assert [point.concurrency for point in workload.points] == [1, 8]
    assert [workload.requests_at(point) for point in workload.points] == [6, 32]
    assert (workload.output_tokens, workload.output_spread) == (64, 0.5)
    open_loop = STUDY.replace("{concurrency: 1}", "{request_rate: 3, requests: 9}")
    path.write_text(open_loop + "objective: {minimize: e2e_p95_ms}\n")
    with pytest.raises(UsageError, match="--concurrency"):
        study_of(named(path))
    assert study_of(named(path, concurrency=[4])).workload.points[0].concurrency == 4
