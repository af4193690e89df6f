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
def test_a_profile_that_is_not_there(runner):
    assert "did you mean `kimi`?" in problem("kimmi", runner)
    assert "./my-machine.yaml" in problem("nothing-like-it", runner)


def test_a_file_that_is_no_profile(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("gpu: H200\n")
    assert str(file) in problem(file)
    file.write_text("a: [")
    assert "not YAML" in problem(file)


def test_a_profile_that_is_there():
    check_runner_key(parse_study(STUDY.replace("PROFILE", "kimi").replace("RUNNER", "sglang"), "a"))


def test_a_study_without_one_is_not_asked():
    text = STUDY.replace("simulated: {profile: PROFILE}\n", "").replace("RUNNER", "sglang")
    check_runner_key(parse_study(text, "small.yaml"))


def test_an_unknown_runner_is_refused_with_the_known_ones():
    text = STUDY.replace("PROFILE", "kimi").replace("RUNNER", "vllm")
    with pytest.raises(StudyFileError) as caught:
        check_runner_key(parse_study(text, "small.yaml"))
    (found,) = caught.value.problems
    assert (found.key, found.line) == ("runner", 6)
    assert "'vllm'" in found.message
    assert "sglang or simulated" in found.message
