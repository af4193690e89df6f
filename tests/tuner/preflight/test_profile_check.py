"""The check of a study's `runner` and of the simulated server's profile."""

from __future__ import annotations

import pytest

from search_spaces.problems import StudyFileError
from search_spaces.study_file.load import parse_study
from tuner.preflight.workload import check_runner_key

STUDY = """\
study: small
model: {path: org/target}
space: {speculation: [{algorithm: none}]}
workload: {prompts: {chat: 1}, output_tokens: 16}
budget: {launches: 4}
runner: RUNNER
simulated: {profile: PROFILE}
"""


def problem(profile, runner="simulated"):
    text = STUDY.replace("PROFILE", str(profile)).replace("RUNNER", runner)
    with pytest.raises(StudyFileError) as caught:
        check_runner_key(parse_study(text, "small.yaml"))
    (found,) = caught.value.problems
    assert (found.key, found.line) == ("simulated.profile", 7)
    return found.message


@pytest.mark.parametrize("runner", ["simulated", "sglang"])
def test_an_unknown_profile_gets_suggestions(runner):
    assert "did you mean `kimi`?" in problem("kimmi", runner)
    assert "./my-machine.yaml" in problem("nothing-like-it", runner)


def test_an_invalid_profile_file_is_refused(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("gpu: H200\n")
    assert str(file) in problem(file)
    file.write_text("a: [")
    assert "not YAML" in problem(file)


def test_a_known_profile_is_accepted():
    check_runner_key(parse_study(STUDY.replace("PROFILE", "kimi").replace("RUNNER", "sglang"), "a"))


def test_a_study_without_a_profile_is_accepted():
    text = STUDY.replace("simulated: {profile: PROFILE}\n", "").replace("RUNNER", "sglang")
    check_runner_key(parse_study(text, "small.yaml"))


def test_an_unknown_runner_gets_the_known_names():
    text = STUDY.replace("PROFILE", "kimi").replace("RUNNER", "vllm")
    with pytest.raises(StudyFileError) as caught:
        check_runner_key(parse_study(text, "small.yaml"))
    (found,) = caught.value.problems
    assert (found.key, found.line) == ("runner", 6)
    assert "'vllm'" in found.message
    assert "sglang or simulated" in found.message
