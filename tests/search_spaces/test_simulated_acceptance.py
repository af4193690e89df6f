"""A study whose servers simulate acceptance must say so."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from search_spaces.launch_commands import read_launch_text
from search_spaces.problems import StudyFileError
from search_spaces.safety_warnings import safety_warnings
from search_spaces.simulated_acceptance import (
    SERVING_WARNING,
    simulates_acceptance,
    simulation_variables,
)
from search_spaces.space.baselines import default_baseline
from search_spaces.study_file.load import load_study, parse_stored, parse_study
from search_spaces.study_file.warnings import warnings

STUDY = """\
study: mine
model: {path: some/model, draft: some/draft, family: other}
server: {flags: {max-running-requests: 64}}
space: {speculation: [{algorithm: none}, {algorithm: EAGLE3, num_steps: [1, 2], topk: 1}]}
workload: {prompts: {chat: 1}, output_tokens: 64}
budget: {launches: 8}
"""
COMMAND = (
    "{} python -m sglang.launch_server --model-path some/model --speculative-algorithm EAGLE3 "
    "--speculative-draft-model-path some/draft --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)
GPU_STUDIES = Path(__file__).parents[2] / "benchmarks" / "gpu"


def text_with(section, values, **more):
    data = yaml.safe_load(STUDY)
    data.setdefault(section, {}).update(values)
    return yaml.safe_dump({**data, **more}, sort_keys=False)


PLACES = [
    ("server", {"env": {"SGLANG_SIMULATE_ACC_LEN": "2.99"}}, "server.env.SGLANG_SIMULATE_ACC_LEN"),
    ("server", {"env": {"SGL_SIMULATE_ACC_LEN": "2.99"}}, "server.env.SGL_SIMULATE_ACC_LEN"),
    ("server", {"prefix": ["env", "SGLANG_SIMULATE_ACC_LEN=3"]}, "server.prefix[1]"),
    (
        "space",
        {"env": {"SGLANG_SIMULATE_ACC_METHOD": [None, "multinomial"]}},
        "space.env.SGLANG_SIMULATE_ACC_METHOD",
    ),
    (
        "production",
        {"command": COMMAND.format("SGLANG_SIMULATE_ACC_LEN=2.99")},
        "production.command",
    ),
]


@pytest.mark.parametrize(("section", "values", "key"), PLACES, ids=[key for *_, key in PLACES])
def test_undeclared_simulated_acceptance_is_refused(section, values, key):
    with pytest.raises(StudyFileError) as caught:
        parse_study(text_with(section, values), "mine.yaml")
    [problem] = [p for p in caught.value.problems if "simulates acceptance" in p.message]
    assert problem.key == key
    assert problem.line is not None
    assert "`simulated_acceptance: true`" in problem.message


@pytest.mark.parametrize(("section", "values", "key"), PLACES, ids=[key for *_, key in PLACES])
def test_declared_simulated_acceptance_is_marked(section, values, key):
    del key
    study = parse_study(text_with(section, values, simulated_acceptance=True), "mine.yaml")
    assert simulates_acceptance(study)
    assert SERVING_WARNING in warnings(study)
    assert SERVING_WARNING in safety_warnings(default_baseline(study), study)


@pytest.mark.parametrize(("section", "values", "key"), PLACES, ids=[key for *_, key in PLACES])
def test_a_stored_study_is_read_and_marked(section, values, key):
    del key
    read = parse_stored(text_with(section, values), "study mine (stored)")
    assert read.problems == ()
    assert simulates_acceptance(read.study)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("server", {"env": {"SGLANG_SIMULATE_ACC_LEN": None}}),
        ("server", {"env": {"SGLANG_SIMULATE_UNIFORM_EXPERTS": "1"}}),
        ("production", {"command": COMMAND.format("env -u SGLANG_SIMULATE_ACC_LEN")}),
    ],
)
def test_a_study_that_removes_the_variable_simulates_nothing(section, values):
    study = parse_study(text_with(section, values), "mine.yaml")
    assert not simulates_acceptance(study)
    assert SERVING_WARNING not in warnings(study)
    assert SERVING_WARNING not in safety_warnings(default_baseline(study), study)


def test_names_of_the_variables():
    names = ("SGLANG_SIMULATE_ACC_LEN", "SGL_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN")
    others = ("SGLANG_SIMULATE_UNIFORM_EXPERTS", "MY_SGLANG_SIMULATE_ACC_LEN")
    assert simulation_variables((*names, *others)) == names


@pytest.mark.parametrize(
    "text",
    [
        COMMAND.format("SGLANG_SIMULATE_ACC_LEN=2.99 SGLANG_SIMULATE_ACC_METHOD=m NCCL_PROTO=LL"),
        "export SGLANG_SIMULATE_ACC_LEN=$LEN\nexport NCCL_PROTO=LL\n" + COMMAND.format(""),
        "docker run -e SGLANG_SIMULATE_ACC_LEN=2.99 -e NCCL_PROTO=LL image "
        + COMMAND.format("").strip(),
    ],
)
def test_a_command_is_read_without_simulated_acceptance(text):
    launch = read_launch_text(text, real_acceptance=True)
    assert launch.env == {"NCCL_PROTO": "LL"}
    assert "SIMULATE_ACC" not in launch.text
    assert "LEN" not in launch.variables
    [note] = [note for note in launch.notes if "SGLANG_SIMULATE_ACC_LEN" in note]
    assert "left out" in note


@pytest.mark.parametrize("path", sorted(GPU_STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_gpu_studies_of_the_project_declare_simulated_acceptance(path):
    assert load_study(path).simulated_acceptance == ("SIMULATE_ACC" in path.read_text())
