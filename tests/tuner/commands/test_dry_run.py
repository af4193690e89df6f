"""`tuner sweep --dry-run`: what it says of a study before anything is launched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from runners.simulated_server.engine.profile import PROFILES
from search_spaces.study_file.load import load_study
from tuner.commands.dry_run import switch_plan
from tuner.studies import assembly

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
    assert "not with your model or machine" in told
    for profile in PROFILES.glob("*.yaml"):
        assert profile.stem in told, "one that could be named"
    named = STUDY + "simulated: {profile: kimi}\n"
    assert "not your model" not in plan_of(tuner, call, named)
    notes = json.loads(plan_of(tuner, call, STUDY, "--json"))["notes"]
    assert any("not with your model or machine" in note for note in notes)


def test_the_other_name_of_an_algorithm_is_told_once(tuner, call):
    told = plan_of(tuner, call, STUDY)
    assert told.count("NEXTN is reported as EAGLE") == 1
    assert "another name" not in plan_of(tuner, call, STUDY.replace("NEXTN", "EAGLE"))


def test_how_long_it_may_take_is_said_to_be_a_guess(tuner, call):
    [line] = [x for x in plan_of(tuner, call, STUDY).splitlines() if x.startswith("time: ")]
    assert "unknown before the first launch" in line
    assert "5 minutes each, 4 launches take 20 minutes" in line
    assert "budget.hours stops the study after 3 hours" in line


def test_commands_are_those_of_trials(tuner, call):
    told = plan_of(tuner, call, STUDY)
    assert "0.0.0.0" not in told
    assert "8080" not in told
    assert "their own address and port" in told
    # What programs read is the command as it is exported, as ever.
    plan = json.loads(plan_of(tuner, call, STUDY, "--json"))
    assert "--host 0.0.0.0 --port 8080" in plan["baselines"]["none"]["command"]
    assert plan["budget"] == {"launches": 8, "hours": 3.0}


ROOT = Path(__file__).parents[3]
COUNTED = re.findall(
    r"^\| `([\w./-]+)` \| (\d+) \| (\d+) \| \*\*(\d+)\*\* \| (\d+ x [^|]+) \| (.*) \|$",
    (ROOT / "docs" / "hot-switch.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize("row", COUNTED, ids=[row[0] for row in COUNTED])
def test_the_document_counts_the_launches_of_every_shipped_study(row, tmp_path, monkeypatch):
    name, points, alone, switched, groups, anchors = row
    if name.endswith(".yaml"):
        # Its prompts are made where it is run.
        (tmp_path / "prompts.jsonl").write_text('{"input_ids": [1, 2, 3]}\n' * 20)
        (tmp_path / "study.yaml").write_text((ROOT / name).read_text())
        monkeypatch.chdir(tmp_path)
        name = "./study.yaml"
    study = load_study(name)
    problem = assembly.build_problem(
        study, assembly.make_servers("simulated", study, seed=0), hot_switch=True
    )
    plan = switch_plan(problem)
    assert len(problem.space) == int(points)
    assert (plan.needed.separate, plan.needed.launches) == (int(alone), int(switched))
    shared = [part for part in plan.shared if part.launches]
    for part, group, anchor in zip(shared, groups.split(", "), anchors.split("; "), strict=True):
        launches, each = map(int, re.match(r"(\d+) x (\d+)", group).groups())
        assert (part.launches, part.configurations) == (launches, launches * each)
        assert (part.drafter.topk == 1) == ("topk" not in group)
        assert part.drafter.topk == 1 or group.endswith(f"(`topk` {part.drafter.topk})")
        assert (part.anchor is None) == ("trial of the search" in anchor)
        assert part.anchor is None or f"`{part.anchor}`" in anchor


def test_the_document_leaves_no_shipped_study_out():
    shipped = {path.stem for path in (ROOT / "search_spaces" / "studies").glob("*.yaml")}
    assert shipped <= {row[0] for row in COUNTED}


def test_what_will_be_switched_is_told_with_its_anchor(tuner, call):
    text = STUDY.replace("meta-llama/Llama-3.1-8B-Instruct", "moonshotai/Kimi-K2.5").replace(
        "[1, 2], topk: 1", "{from: 1, to: 4}, topk: 1"
    )
    told = plan_of(tuner, call, text)
    assert "hot switch: 3 launches instead of 5" in told
    assert "EAGLE: 4 configurations (steps 1, 2, 3, 4), 1 launch" in told
    assert "reference run: baseline 'default'" in told
    assert "take 15 minutes, or more, because one launch measures up to 4 settings" in told
    plan = json.loads(plan_of(tuner, call, text, "--json"))
    assert plan["launches_for_all_points"] == plan["hot_switch"]["launches"] == 3
    assert plan["hot_switch"]["shared"][0]["anchor"] == "default"
    alone = json.loads(plan_of(tuner, call, text, "--json", "--no-hot-switch"))
    assert (alone["launches_for_all_points"], alone["hot_switch"]["asked"]) == (5, False)
    told = plan_of(tuner, call, text, "--no-hot-switch")
    assert "\nhot switch: off (--no-hot-switch)\n" in told
    assert told.count("hot switch") == 1


def test_trees_are_told_apart_with_their_topk_and_draft_tokens(tuner, call):
    # SGLang's default for Llama is the tree of 5 steps, topk 4, 8 tokens.
    text = STUDY.replace("NEXTN", "EAGLE3").replace(
        "[1, 2], topk: 1", "[3, 5], topk: [1, 4], num_draft_tokens: [8, 16]"
    )
    told = plan_of(tuner, call, text)
    assert "EAGLE3, topk 4: 4 configurations (steps/draft tokens 3/8, 3/16, 5/8, 5/16)" in told
    assert "reference run: baseline 'default'" in told
    assert "hot switch: 5 launches instead of 7" in told
    plan = json.loads(plan_of(tuner, call, text, "--json"))["hot_switch"]
    chains, trees = plan["shared"]
    assert (chains["topk"], chains["steps"], chains["draft_tokens"]) == (1, [3, 5], [4, 6])
    assert chains["launches"] == 0, "a pair, of which one is the anchor"
    assert trees == {
        "algorithm": "EAGLE3",
        "topk": 4,
        "launches": 1,
        "configurations": 4,
        "steps": [3, 3, 5, 5],
        "draft_tokens": [8, 16, 8, 16],
        "anchor": "default",
    }


def test_a_pair_of_which_one_is_the_anchor_is_nothing_to_be_switched_through(tuner, call):
    text = STUDY.replace("meta-llama/Llama-3.1-8B-Instruct", "moonshotai/Kimi-K2.5").replace(
        "[1, 2], topk: 1", "[2, 3], topk: 1"
    )
    told = plan_of(tuner, call, text)
    assert "hot switch: no settings can share a launch" in told
    assert "0 launches" not in told


def test_a_space_of_nothing_that_could_be_switched_is_told_so(tuner, call):
    told = plan_of(tuner, call, STUDY.replace("[1, 2]", "[1]"))
    assert "\nhot switch: no settings can share a launch\n" in told


def test_without_sglang_one_line_says_why_nothing_is_switched(tuner, call):
    (tuner.folder / "llama.yaml").write_text(STUDY)
    told, _ = call("sweep", "--study", "./llama.yaml", "--runner", "sglang", "--dry-run")
    about = [line for line in told.splitlines() if "hot switch" in line or "draft steps" in line]
    works = "no SGLang was found (the plugin works with 0.5.17 and 0.5.23)"
    assert about == [f"hot switch: off: {works}"]
    assert "shared" not in told
