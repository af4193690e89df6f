"""A study's measurements as a table: what was stored, and the same study replayed from it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from results import Store
from results.records import Failure
from runners.replay import ReplayEntry, ReplayRow, read_replay_table, table_of
from search_spaces import Space, baselines, parse_study
from tuner.replay import replay

ROOT = Path(__file__).parents[2]
TEXT = """
study: s
model: {path: target, draft: draft, family: llama}
server: {flags: {tp-size: 2, max-running-requests: 8}}
space:
  speculation:
    - {algorithm: none}
    - {algorithm: EAGLE3, num_steps: [1, 2, 3], topk: 1}
  env: {NCCL_PROTO: [null, "LL,LL128,Simple"]}
workload: {prompts: {chat: 1}, output_tokens: 64, points: [{concurrency: 1}, {concurrency: 8}]}
objective: {maximize: output_tok_s}
budget: {launches: 20}
runner: simulated
simulated: {profile: kimi-k2.5-pcie}
"""


def speed(configuration, concurrency: int) -> ReplayRow:
    steps = configuration.speculation.num_steps or 0
    return ReplayRow(
        concurrency * (90.25 - (steps - 2) ** 2 + len(configuration.env)),
        accept_length=1 + steps / 4 if steps else None,
    )


@pytest.fixture
def study():
    return parse_study(TEXT, "s.yaml")


@pytest.fixture
def replayed(study, tmp_path):
    """A database with the study, replayed; one point of it died."""
    points = {*Space(study).points, *baselines(study).values()}
    dead = next(p for p in points if p.speculation.num_steps == 3)
    table = table_of(
        (
            point,
            ReplayEntry(
                40.0,
                {c: (speed(point, c),) for c in (1, 8)},
                Failure("cuda_oom", "kv_cache", "configuration", "m") if point == dead else None,
            ),
        )
        for point in points
    )
    address = f"sqlite:///{tmp_path / 't.db'}"
    with Store.open(address) as store:
        report = replay(study, table, store, name="s")
    return address, report, dead


def test_every_measurement_is_a_row_and_replays_to_the_same_end(study, replayed, tmp_path):
    address, report, dead = replayed
    out = tmp_path / "t.csv"
    subprocess.run(
        [
            *(sys.executable, ROOT / "benchmarks" / "table.py", "--storage", address),
            *("--study", "s", "--output", out),
        ],
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    trials = report.standing.trials
    assert len(rows) == sum(max(1, len(trial.measurements)) for trial in trials)
    [failed] = [row for row in rows if row["state"] == "infeasible"]
    assert (failed["configuration"], failed["failure"]) == (dead.key, "cuda_oom")
    assert (failed["concurrency"], failed["output_tok_s"]) == ("", "")
    best = report.standing.best
    [at_8] = [r for r in rows if r["trial"] == str(best.number) and r["concurrency"] == "8"]
    assert float(at_8["output_tok_s"]) == speed(best.configuration, 8).output_tok_s
    assert json.loads(at_8["env"]) == dict(best.configuration.env)
    assert at_8["num_steps"] == str(best.configuration.speculation.num_steps)
    assert at_8["provenance"] == "simulated"

    with Store.open("sqlite://") as store:
        again = replay(study, read_replay_table(out), store, name="s")
    assert again.standing.best.configuration == best.configuration
    assert again.standing.score(again.standing.best) == pytest.approx(report.standing.score(best))
