"""`tuner sweep --dry-run`: what it says of a study before anything is launched."""

from __future__ import annotations

import json

from runners.simulated_server.profile import PROFILES

STUDY = """\
study: llama
model: {path: meta-llama/Llama-3.1-8B-Instruct, draft: org/draft}
server: {flags: {tp-size: 2, max-running-requests: 64, host: 0.0.0.0, port: 8080}}
space:
  speculation: [{algorithm: none}, {algorithm: NEXTN, num_steps: [1, 2], topk: 1}]
workload: {prompts: {chat: 1}, output_tokens: 64}
budget: {launches: 8, hours: 3}
"""


def plan_of(tuner, call, text, *more):
    (tuner.folder / "llama.yaml").write_text(text)
    command = ("sweep", "--study", "./llama.yaml", "--runner", "simulated", "--dry-run")
    return call(*command, *more)[0]


def test_a_machine_that_the_study_did_not_name_is_told(tuner, call):
    told = plan_of(tuner, call, STUDY)
    assert "note: simulated with the profile kimi (8 x NVIDIA RTX PRO 6000 Blackwell)" in told
    assert "not your model or machine" in told
    for profile in PROFILES.glob("*.yaml"):
        assert profile.stem in told, "one that could be named"
    named = STUDY + "simulated: {profile: kimi}\n"
    assert "not your model" not in plan_of(tuner, call, named)
    notes = json.loads(plan_of(tuner, call, STUDY, "--json"))["notes"]
    assert any("not your model or machine" in note for note in notes)


def test_the_other_name_of_an_algorithm_is_told_once(tuner, call):
    told = plan_of(tuner, call, STUDY)
    assert told.count("NEXTN is another name of EAGLE") == 1
    assert "another name" not in plan_of(tuner, call, STUDY.replace("NEXTN", "EAGLE"))


def test_how_long_it_may_take_is_said_to_be_a_guess(tuner, call):
    [line] = [x for x in plan_of(tuner, call, STUDY).splitlines() if x.startswith("time: ")]
    assert "not known before the first launch" in line
    assert "at 5 minutes each 4 launches would take 20 minutes" in line
    assert "budget.hours ends it after 3 hours" in line


def test_commands_are_those_of_trials(tuner, call):
    told = plan_of(tuner, call, STUDY)
    assert "0.0.0.0" not in told
    assert "8080" not in told
    assert "an address and port of their own" in told
    # What programs read is the command as it is exported, as ever.
    plan = json.loads(plan_of(tuner, call, STUDY, "--json"))
    assert "--host 0.0.0.0 --port 8080" in plan["baselines"]["none"]["command"]
    assert plan["budget"] == {"launches": 8, "hours": 3.0}
