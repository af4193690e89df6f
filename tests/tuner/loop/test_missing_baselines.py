"""A baseline that is not believed: the study goes on without it and says so."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow

MISBEHAVE = "TUNER_SIM_MISBEHAVE"
LOSES_COUNTS = {"kind": "acceptance_missing", "when": {"num_steps": 3}}
"""The baseline `default` has 3 steps, and the space of these studies has 1."""
ONE = {"steps": "[1]", "protos": "[null]", "launches": 3}


def sweep(call, write_small, monkeypatch, misbehaviours, code):
    monkeypatch.setenv(MISBEHAVE, json.dumps(misbehaviours))
    return call("sweep", "--study", write_small(**ONE), code=code)


def test_the_verdict_names_a_missing_baseline_and_why(call, write_small, monkeypatch):
    out, err = sweep(call, write_small, monkeypatch, [LOSES_COUNTS], 0)
    assert "warning: baseline 'default' is missing: trial 1 is invalid: " in err
    assert "the other baselines are used" in err
    assert "baseline 'default' is missing" in out

    report = json.loads(call("show", "--study", "small", "--json")[0])
    assert report["baselines"]["default"] == 1
    assert report["trials"][1]["state"] == "invalid"
    assert report["best"]["gain"]["default"] is None
    reason = report["verdict"]["reason"]
    assert "baseline 'default' is missing: trial 1 is invalid: " in reason
    assert "acceptance_missing" in reason
    [searched] = [t for t in report["trials"] if t["purpose"] == "search"]
    assert searched["state"] == "complete"
    assert searched["score"] is not None


def test_a_study_stops_where_no_baseline_is_believed(call, write_small, monkeypatch):
    out, _ = sweep(call, write_small, monkeypatch, [{"kind": "cached_tokens"}], 4)
    assert "no baseline is left to compare with" in out
    report = json.loads(call("show", "--study", "small", "--json")[0])
    assert report["budget"]["stopped"] == "fault"
    assert [t["state"] for t in report["trials"]] == ["invalid", "invalid"]
    for name, number in (("none", 0), ("default", 1)):
        assert (
            f"baseline '{name}' is missing: trial {number} is invalid"
            in (report["budget"]["reason"])
        )
