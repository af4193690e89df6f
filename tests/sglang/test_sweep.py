"""The main job on the real SGLang: sweep, kill, resume, export, and the same server again."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from results.store import Store
from runners.server_facts import speculation_of
from search_spaces.configuration import Configuration

from .by_hand import free_port, resolved, started

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(2400)]

STUDY = """\
study: tiny
model: {{path: {models}/tiny, draft: {models}/noisy, family: llama}}
server:
  python: {python}
  flags:
    device: cpu
    dtype: float32
    max-total-tokens: 20000
    max-running-requests: 16
    port: {port}
  env: {{SGLANG_USE_CPU_ENGINE: "1", HF_HUB_OFFLINE: "1", OMP_NUM_THREADS: "1"}}
space:
  speculation:
    - algorithm: none
    - algorithm: STANDALONE
      num_steps: {{from: 1, to: 4}}
      topk: [1, 2]
      num_draft_tokens: [4]
workload:
  prompts: {{chat: 0.5, code: 0.5}}
  output_tokens: 48
  points: [{{concurrency: 1}}]
  requests: 8
budget: {{launches: {launches}, hours: 1}}
objective: {{maximize: output_tok_s}}
runner: sglang
"""


def marked(folder: Path) -> set[int]:
    """Servers of the tuner in this folder; others may run theirs on this machine."""
    found = set()
    for process in psutil.process_iter():
        try:
            if "TUNER_LAUNCH" in process.environ() and process.cwd() == str(folder):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def check_against_the_samples(folder: Path, report: dict) -> None:
    """Accept length and tok/s in the database, from the server's replies and the client's clock."""
    with Store.open(f"sqlite:///{folder / 'tuner.db'}", create=False) as store:
        study = store.study("tiny")
        for number in (t["number"] for t in report["trials"] if t["state"] == "complete"):
            trial = store.trial(study.id, number, samples=True)
            (m,) = trial.measurements
            samples = m.samples
            assert len(samples) == m.requests == 8
            assert sum(s.completion_tokens for s in samples) == m.output_tokens == 8 * 48
            # One after the other: the window is the requests' own times and the gaps between.
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


def start_again(tuner, port: int, trial: dict) -> None:
    """The exported script, started, runs what the trial ran."""
    number = str(trial["number"])
    tuner.run("export", "--study", "tiny", "--output", "best.sh", "--force", "--trial", number)
    with started(tuner, "sh best.sh", port) as (info, _):
        pass
    asked = Configuration.from_dict(trial["resolved"])
    assert speculation_of(info) == asked.speculation
    assert info["version"] == "0.5.23"
    assert info["tp_size"] == (asked.draft_tp or 1)
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}", create=False) as store:
        measured = store.server_info(store.study("tiny").id, trial["number"])
    assert resolved(info) == resolved(measured)


def whole_job(tuner, cpu_server, launches: int) -> dict:
    """Sweeps `launches` launches, with a kill in the second one; returns the last report."""
    folder, port = tuner.folder, free_port()
    (folder / "tiny.yaml").write_text(
        STUDY.format(
            models=cpu_server.models, python=cpu_server.python, port=port, launches=launches
        )
    )
    process = tuner.start("sweep", "--study", "./tiny.yaml")
    for line in process.stderr:
        if "launch 1:" in line:
            break
    deadline = time.monotonic() + 60
    while not marked(folder):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.kill()
    process.communicate()
    assert marked(folder)  # the server of launch 1 outlives the tuner ...
    report = json.loads(tuner.run("resume", "--study", "tiny", "--json", timeout=2000).stdout)
    assert not marked(folder)  # ... until resume ends it, and its own servers
    assert report["budget"]["launches_spent"] == launches
    assert report["launches"][1]["state"] == "lost"
    assert report["sglang_version"] == "0.5.23"
    assert report["simulated"] is False
    assert report["trials"][0]["launches"] == [0]
    assert report["trials"][1]["launches"] == [1, 2]
    check_against_the_samples(folder, report)
    speculative = [t for t in report["trials"] if t["accept_length"] is not None]
    # The best speculative one: without speculation there is little to get wrong.
    start_again(tuner, port, max(speculative, key=lambda t: t["score"]))
    return report


def test_sweep_kill_resume_export_and_the_same_server_again(cpu_server, tuner):
    report = whole_job(tuner, cpu_server, launches=2)
    assert [t["configuration"]["speculation"]["algorithm"] for t in report["trials"]] == [
        "none",
        "STANDALONE",
    ]
    assert report["baselines"] == {"none": 0, "default": 1, "production": None}


@pytest.mark.sglang_long
def test_the_whole_space(cpu_server, tuner):
    report = whole_job(tuner, cpu_server, launches=8)  # none, 4 chains, 3 trees
    assert report["budget"]["stopped"] == "exhausted"
    # A tree of fewer tokens than steps + 1 passes SGLang's checks and dies in its warm-up (0.5.23).
    narrow = {"algorithm": "STANDALONE", "num_steps": 4, "topk": 2, "num_draft_tokens": 4}
    dead = [t for t in report["trials"] if t["state"] != "complete"]
    assert [(t["configuration"]["speculation"], t["state"]) for t in dead] == [
        (narrow, "infeasible")
    ]
    assert "expanded size of the tensor (4)" in dead[0]["failure"]["message"]
    accept = {
        (s["num_steps"], s["topk"]): t["accept_length"]
        for t in report["trials"]
        if (s := t["configuration"]["speculation"])["algorithm"] != "none"
    }
    # On one draft, more steps accept more.
    chain = [accept[steps, 1] for steps in (1, 2, 3, 4)]
    assert chain == sorted(chain)
