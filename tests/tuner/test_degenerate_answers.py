"""Fast garbage never wins: degenerate answers beside a baseline whose answers are good."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def sweep(call, write_small, monkeypatch):
    """Runs a study of 2 steps beside the baseline of 3 steps; its report."""

    def run(*misbehaviours):
        monkeypatch.setenv("TUNER_SIM_MISBEHAVE", json.dumps(misbehaviours))
        path = write_small(steps="[2]", protos="[null]", launches=3, requests=8)
        return json.loads(call("sweep", "--study", path, "--json")[0])

    return run


def warned(trial):
    return any(w.startswith("degenerate_output") for w in trial["points"][0]["warnings"])


def test_degenerate_answers_are_invalid_where_the_baselines_are_good(sweep):
    report = sweep({"kind": "garbage", "when": {"num_steps": 2}})
    [searched] = [t for t in report["trials"] if t["purpose"] == "search"]
    assert warned(searched)
    assert searched["state"] == "invalid"
    assert searched["score"] is None
    assert "degenerate_output" in searched["failure"]["message"]
    assert "baseline trial" in searched["failure"]["message"]
    assert report["best"]["trial"] != searched["number"]


def test_degenerate_answers_everywhere_stay_a_warning(sweep):
    report = sweep({"kind": "garbage"})
    assert all(warned(trial) for trial in report["trials"])
    assert {trial["state"] for trial in report["trials"]} == {"complete"}
