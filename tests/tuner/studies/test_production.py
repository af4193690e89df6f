"""Today's command through a whole sweep, on simulated servers."""

from __future__ import annotations

import json

import pytest

from search_spaces.configuration import Configuration
from tuner.formatting import describe_system

from ...quick_profile import write_quick_profile
from ..conftest import small_text

pytestmark = pytest.mark.slow

SERVE = (
    "python -m sglang.launch_server --model moonshotai/Kimi-K2.5 --tp 8 "
    "--speculative-algo EAGLE3 --speculative-draft-model-path lightseekorg/kimi-k2.5-eagle3"
)


def write(tuner, command: str, **changes: object) -> str:
    profile = write_quick_profile(tuner.folder)
    text = (
        f"{small_text(profile=profile, **changes)}production: {{command: {json.dumps(command)}}}\n"
    )
    (tuner.folder / "small.yaml").write_text(text)
    return "./small.yaml"


def test_today_is_measured_as_it_runs_and_compared_with(tuner, call, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_notforothers")
    monkeypatch.setenv("SGLANG_API_KEY", "notforothers")
    command = (
        f"HF_TOKEN=$HF_TOKEN {SERVE} --max-running-requests 32 --cuda-graph-bs-decode 1 2 4 "
        "--context-length 128k --host 0.0.0.0 --api-key $SGLANG_API_KEY --speculative-num-steps 2 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 3"
    )
    path = write(tuner, command, steps="[1]", protos="[null]", requests=8)
    call("validate", "--study", path)
    report = json.loads(call("sweep", "--study", path, "--json", "--seed", "1")[0])
    number = report["baselines"]["production"]
    trial = report["trials"][number]
    assert trial["state"] == "complete"
    assert trial["configuration"] == {
        "speculation": {
            "algorithm": "EAGLE3", "num_steps": 2, "topk": 1, "num_draft_tokens": 3
        },
        "draft_tp": 8,
        "flags": {
            "context-length": "128k", "cuda-graph-bs-decode": [1, 2, 4], "max-running-requests": 32
        },
        "env": {"NCCL_PROTO": None},
    }  # fmt: skip
    assert report["best"]["gain"]["production"] is not None
    table = call("show", "--study", "small")[0]
    assert "baseline production" in table
    described = describe_system(Configuration.from_dict(trial["configuration"]))
    assert "--cuda-graph-bs-decode 1 2 4 --max-running-requests 32" in described
    # Resuming finds the trial again, though JSON has made lists of its words.
    again = json.loads(call("resume", "--study", "small", "--json")[0])
    assert again["baselines"] == report["baselines"]
    for shown in (table, json.dumps(report), call("export", "--study", "small")[0]):
        assert "notforothers" not in shown


def test_today_may_be_another_baseline(tuner, call):
    command = f"{SERVE} --max-running-requests 64"
    path = write(tuner, command.replace(" --max-running-requests 64", ""))
    planned = call("sweep", "--study", path, "--dry-run")[0]
    assert "baseline 'production': EAGLE3 steps 3, without --max-running-requests" in planned
    path = write(tuner, command, steps="[1, 3]", protos="[null]")
    report = json.loads(call("sweep", "--study", path, "--json", "--seed", "1")[0])
    assert report["baselines"]["production"] == report["baselines"]["default"]
    assert "baseline default, production" in call("show", "--study", "small")[0]


def test_today_may_break_a_rule_and_is_launched_all_the_same(tuner, call):
    tree = "--speculative-num-steps 1 --speculative-eagle-topk 2 --speculative-num-draft-tokens 64"
    path = write(tuner, f"{SERVE} {tree}")
    plan = json.loads(call("sweep", "--study", path, "--dry-run", "--json")[0])
    assert list(plan["baselines"]) == ["none", "default", "production"]
    assert "--speculative-num-draft-tokens 64" in plan["baselines"]["production"]["command"]
    assert any("breaks a rule but is measured" in note for note in plan["notes"])


def test_a_draft_that_nothing_can_place(tuner, call):
    path = write(tuner, SERVE)
    text = (tuner.folder / "small.yaml").read_text().replace("    - algorithm: none\n", "")
    text = text.replace("space:\n", "space:\n  draft_tp: [1, 2]\n")
    (tuner.folder / "small.yaml").write_text(text)
    said = " ".join(call("sweep", "--study", path, "--dry-run", code=2)[1].split())
    assert "no point of the search space can be measured here: draft_tp 1, 2 is skipped" in said
