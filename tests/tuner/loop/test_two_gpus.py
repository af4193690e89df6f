"""Whole sweeps of a simulated two-GPU machine on which SGLang's own kernel carries decoding."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from ...quick_profile import write_quick_profile

pytestmark = pytest.mark.slow

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
OFF = "disable-custom-all-reduce"
STUDY = f"""\
study: two
model: {{path: some/llama, draft: some/draft, family: other}}
server: {{flags: {{tp-size: 2, max-running-requests: 8}}}}
space:
  speculation:
    - algorithm: none
    - {{algorithm: EAGLE3, num_steps: 2, topk: 1}}
  flags: {{{OFF}: [null, true]}}
  env: {{NCCL_PROTO: [null, Simple]}}
workload: {{prompts: {{chat: 1}}, output_tokens: 32, requests: 4}}
budget: {{launches: 12}}
runner: simulated
simulated: {{profile: ./llama-8b-2xh200-quick.yaml, time_scale: 4}}
"""


@pytest.fixture
def write_two(tuner):
    """The path of the study, with the shipped profile but for its slow starts."""
    write_quick_profile(tuner.folder, "llama-8b-2xh200")
    (tuner.folder / "study.yaml").write_text(STUDY)
    return "./study.yaml"


def place(trial):
    """Speculation's steps, whether NCCL carries decoding, and NCCL's protocol."""
    configuration = trial["configuration"]
    return (
        configuration["speculation"].get("num_steps"),
        bool(configuration["flags"].get(OFF)),
        configuration["env"]["NCCL_PROTO"],
    )


def test_the_fastest_is_found_and_inactive_points_are_shown_and_not_launched(
    tuner, write_two, call
):
    out, told = call("sweep", "--study", write_two, "--json")
    report = json.loads(out)
    jsonschema.validate(report, json.loads((SCHEMAS / "report.schema.json").read_text()))
    assert "2 points are inactive, not launched: SGLang's all-reduce kernel" in told
    inactive = [t for t in report["trials"] if t["state"] == "inactive"]
    assert {place(t) for t in inactive} == {(None, False, "Simple"), (2, False, "Simple")}
    for trial in inactive:
        assert trial["launches"] == []
        assert trial["score"] is trial["output_tok_s"] is trial["resolved"] is None
        assert trial["failure"]["kind"] == "nccl_unused"
        assert "log of launch 0" in trial["failure"]["message"]
    others = {place(t): t for t in report["trials"] if t["state"] == "complete"}
    # The space but for those two, and the default baseline of 3 steps
    assert others.keys() == {
        *((steps, False, None) for steps in (None, 2, 3)),
        *((steps, True, name) for steps in (None, 2) for name in (None, "Simple")),
    }
    assert report["budget"]["stopped"] == "exhausted"
    assert "2 of them without a launch" in report["budget"]["reason"]
    # 2 and 3 steps could share a launch, but behind an anchor that saves none.
    assert report["budget"]["launches_spent"] == len(report["launches"]) == 7
    best = report["trials"][report["best"]["trial"]]
    assert place(best)[0] in {2, 3}  # 2 % apart
    assert place(best)[1:] == (False, None)
    assert "NCCL_PROTO=" not in report["best"]["command"]
    assert others[2, True, "Simple"]["score"] < others[2, True, None]["score"] < best["score"]

    table, _ = call("show", "--study", "two")
    numbers = ", ".join(str(t["number"]) for t in inactive)
    assert f"trials {numbers} are inactive: not launched: SGLang's" in table
    shown, _ = call("show", "--study", "two", "--trial", str(inactive[0]["number"]))
    assert "NCCL only gathers logits" in shown
    assert "no problem found" in call("db", "check")[0]


def test_a_dry_run_tells_what_is_known_beforehand(write_two, call):
    """The space, 8 points, and the default baseline."""
    plan = json.loads(call("sweep", "--dry-run", "--study", write_two, "--json")[0])
    assert plan["legal_points"] == 8
    assert plan["expected_inactive"] == 2
    assert plan["launches_for_all_points"] == 7
    assert any("2 points will probably need no launch" in note for note in plan["notes"])
