"""`tuner validate` with the real SGLang."""

from __future__ import annotations

import json

import pytest
import yaml

from search_spaces.study_file.load import load_study
from tuner.cli.app import run

# Importing SGLang takes a minute or two on a slow and busy machine.
pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1200)]


@pytest.fixture
def study_file(cpu_server, tmp_path, monkeypatch):
    """The study `tiny` with a choice that SGLang refuses on this machine."""
    data = yaml.safe_load(load_study("tiny").text)
    data["study"] = "refused"
    models = cpu_server.models
    data["model"] |= {"path": str(models / "tiny"), "draft": str(models / "noisy")}
    data["server"]["python"] = str(cpu_server.python)
    del data["server"]["flags"]["max-running-requests"]
    data["space"]["flags"] = {"kv-cache-dtype": [None, "mxfp8"]}
    file = tmp_path / "refused.yaml"
    file.write_text(yaml.safe_dump(data))
    monkeypatch.setenv("TUNER_LOCKS", str(tmp_path / "locks"))
    monkeypatch.delenv("TUNER_SGLANG_PYTHON", raising=False)
    return str(file)


def test_validate_reports_refusals_and_rewrites_of_sglang(study_file, capsys):
    assert run(["validate", "--study", study_file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    word = found["sglang"]
    assert (word["version"], word["as_if_on"]) == ("0.5.23", None)
    assert word["unanswered"] == []
    assert len(word["refused"]) == found["legal_points"] / 2
    for refused in word["refused"]:
        assert refused["configuration"]["flags"] == {"kv-cache-dtype": "mxfp8"}
        assert "mxfp8 requires an SM100+" in refused["reason"]
    sets = {choice["flag"]: choice for choice in word["sets_itself"]}
    values = {v["value"]: v["at"] for v in sets["max-running-requests"]["values"]}
    assert sets["max-running-requests"]["by"] == "algorithm"
    assert values == {None: ["none"], 48: ["STANDALONE"]}
