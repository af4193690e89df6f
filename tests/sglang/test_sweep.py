"""A whole space on the real SGLang: sweep, kill, resume, export, and a start of the export."""

from __future__ import annotations

import pytest

from results.store import Store
from runners.server_info import speculation_of
from search_spaces.configuration import Configuration

from .by_hand import free_port, resolved, started
from .killed_sweep import check_against_the_samples, swept_with_a_kill
from .servers import VERSION

pytestmark = [pytest.mark.sglang, pytest.mark.sglang_long, pytest.mark.timeout(2400)]

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


def start_again(tuner, port: int, trial: dict) -> None:
    """The exported script starts the server of the trial."""
    number = str(trial["number"])
    tuner.run("export", "--study", "tiny", "--output", "best.sh", "--force", "--trial", number)
    with started(tuner, "sh best.sh", port) as (info, _):
        pass
    asked = Configuration.from_dict(trial["resolved"])
    assert speculation_of(info) == asked.speculation
    assert info["version"] == VERSION
    assert info["tp_size"] == (asked.draft_tp or 1)
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}", create=False) as store:
        measured = store.server_info(store.study("tiny").id, trial["number"])
    assert resolved(info) == resolved(measured)


def test_the_whole_space(cpu_server, tuner):
    port, launches = free_port(), 8  # none, 4 chains, 3 trees
    (tuner.folder / "tiny.yaml").write_text(
        STUDY.format(
            models=cpu_server.models, python=cpu_server.python, port=port, launches=launches
        )
    )
    report = swept_with_a_kill(tuner, "./tiny.yaml", "tiny", launches)
    assert report["baselines"] == {"none": 0, "default": 1, "production": None}
    check_against_the_samples(tuner, report)
    speculative = [t for t in report["trials"] if t["accept_length"] is not None]
    # Without speculation there is little to get wrong.
    start_again(tuner, port, max(speculative, key=lambda t: t["score"]))
    assert report["budget"]["stopped"] == "exhausted"
    # A tree with fewer tokens than steps + 1 passes the checks and crashes in warm-up (0.5.23).
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
    # More steps of one draft accept more.
    chain = [accept[steps, 1] for steps in (1, 2, 3, 4)]
    assert chain == sorted(chain)
