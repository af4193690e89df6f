"""A sweep on the real SGLang that is killed in its second launch, and resumed."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from results.store import Store

from .servers import VERSION

if TYPE_CHECKING:
    from pathlib import Path


def marked(folder: Path) -> set[int]:
    """Servers of the tuner in this folder, without those of other tests."""
    found = set()
    for process in psutil.process_iter():
        try:
            if "TUNER_LAUNCH" in process.environ() and process.cwd() == str(folder):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def swept_with_a_kill(tuner: Any, file: str, study: str, launches: int) -> dict[str, Any]:
    """Report of a sweep of `launches` launches that is killed in the second one and resumed."""
    folder = tuner.folder
    process = tuner.start("sweep", "--study", file)
    for line in process.stderr:
        if "launch 1:" in line:
            break
    deadline = time.monotonic() + 120
    while not marked(folder):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.kill()
    process.communicate()
    assert marked(folder)  # the server of launch 1 outlives the tuner ...
    report = json.loads(tuner.run("resume", "--study", study, "--json", timeout=2000).stdout)
    assert not marked(folder)  # ... until resume ends it, and its own servers
    assert report["budget"]["launches_spent"] == launches
    assert report["launches"][1]["state"] == "lost"
    assert report["sglang_version"] == VERSION
    assert report["simulated"] is False
    assert report["trials"][0]["launches"] == [0]
    assert report["trials"][1]["launches"] == [1, 2]
    return report


def check_against_the_samples(tuner: Any, report: dict[str, Any]) -> None:
    """Recompute accept length and tok/s in the database from the samples."""
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}", create=False) as store:
        study = store.study(report["study"])
        for number in (t["number"] for t in report["trials"] if t["state"] == "complete"):
            trial = store.trial(study.id, number, samples=True)
            (m,) = trial.measurements
            samples = m.samples
            assert len(samples) == m.requests
            # A mean of 48 with the default spread of a half.
            lengths = {s.completion_tokens for s in samples}
            assert len(lengths) == m.requests
            assert m.output_tokens == sum(lengths) == m.requests * 48
            # Requests run one after the other, so the window is their times and the gaps.
            assert sum(s.e2e_s for s in samples) <= m.window_s
            assert m.window_s == pytest.approx(samples[-1].sent_s + samples[-1].e2e_s, rel=0.02)
            assert m.output_tok_s == pytest.approx(m.output_tokens / m.window_s)
            if trial.configuration.speculation.enabled:
                correct = sum(s.correct_drafts for s in samples)
                verify = sum(s.verify_calls for s in samples)
                assert m.accept_length == pytest.approx(1 + correct / verify)
                width = trial.configuration.speculation.num_draft_tokens
                steps = trial.configuration.speculation.num_steps
                assert 1 < m.accept_length <= min(steps + 1, width)
            else:
                assert m.accept_length is None
                assert not any(s.verify_calls for s in samples)
