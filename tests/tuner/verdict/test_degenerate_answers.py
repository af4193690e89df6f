"""Fast garbage never wins: degenerate answers beside a baseline whose answers are good."""

from __future__ import annotations

import json

import pytest

from results.records import TrialState
from results.store import Store

pytestmark = pytest.mark.slow


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


def test_every_command_uses_the_derived_state(sweep, call):
    report = sweep({"kind": "garbage", "when": {"num_steps": 2}})
    [number] = [t["number"] for t in report["trials"] if t["purpose"] == "search"]
    with Store.open_to_read("sqlite:///tuner.db") as store:
        stored = store.trial(store.study("small").id, number, samples=False)
    assert stored.state is TrialState.COMPLETE  # the store has what was measured

    def read(*command, code=0):
        return json.loads(call(*command, "--study", "small", "--json", code=code)[0])

    for command in ("show", "resume"):
        found = read(command)
        assert found["trials"][number]["state"] == "invalid"
        assert found["best"]["trial"] == report["best"]["trial"]
        assert found["verdict"] == report["verdict"]
    assert read("show", "--trial", str(number))["state"] == "invalid"
    exported = json.loads(call("export", "--study", "small", "--format", "json")[0])
    assert exported["trial"] != number
    _, err = call("export", "--study", "small", "--format", "json", "--trial", str(number))
    assert f"trial {number} is invalid" in err
    assert read("explain")["trial"] != number
    assert json.loads(call("db", "check", "--json")[0])["problems"] == []
    [listed] = json.loads(call("db", "list", "--json")[0])["studies"]
    assert listed["best"]["trial"] == report["best"]["trial"]


def test_a_fork_leaves_degenerate_trials_out(sweep, call, monkeypatch):
    sweep({"kind": "garbage", "when": {"num_steps": 2}})
    monkeypatch.setenv("TUNER_SIM_MISBEHAVE", "[]")
    out, err = call("resume", "--study", "small", "--fork", "again", "--launches", "3", "--json")
    assert "1 invalid, without a result" in err
    assert {t["state"] for t in json.loads(out)["trials"]} == {"complete"}


def test_degenerate_answers_everywhere_stay_a_warning(sweep):
    report = sweep({"kind": "garbage"})
    assert all(warned(trial) for trial in report["trials"])
    assert {trial["state"] for trial in report["trials"]} == {"complete"}
