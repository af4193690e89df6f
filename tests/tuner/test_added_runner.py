"""A runner of another engine takes one module and one registration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runners import registry

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).with_name("table_runner.py")


def test_sweep_uses_a_runner_of_another_engine(write_small, tuner, call, monkeypatch):
    study = tuner.folder / write_small(steps="[1, 2]", protos="[null]", requests=2, warmup=0)
    text = study.read_text().replace("runner: simulated", "runner: table")
    study.write_text(text.replace("num_draft_tokens: [4, 8]", "num_draft_tokens: [2, 3]"))
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    monkeypatch.setattr(registry, "_CLASSES", dict(registry._CLASSES))
    registry.register("table", "table_runner:TableRunner")

    out, _ = call("sweep", "--study", str(study), "--json")
    report = json.loads(out)
    trials = report["trials"]
    assert {
        trial["configuration"]["speculation"].get("num_steps", 0): trial["output_tok_s"]
        for trial in trials
    } == {0: 90.0, 1: 97.0, 2: 93.0, 3: 88.0}
    assert report["best"]["command"] == "other-engine --draft-steps=1"
    _, err = call("export", code=2)
    assert "SGLang" in err
    assert "other-engine --draft-steps=1" in err


def test_sweep_refuses_an_unknown_runner(write_small, call):
    _, err = call("sweep", "--study", write_small(), "--runner", "vllm", code=2)
    assert "sglang, simulated" in err


def test_docs_show_the_example():
    page = Path(__file__).parents[2] / "docs" / "runners.md"
    assert EXAMPLE.read_text() in page.read_text()
