"""A study's measurements as a table: what was stored, and the same study replayed from it."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.table import OpenLoopError, of_cycle, rows, shown
from results.records import BatchCycles, CycleTimes, Failure, PartTime
from results.store import Store
from runners.replay.table import ReplayEntry, ReplayRow, read_replay_table, table_of
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from search_spaces.workload import OperatingPoint
from tuner.replay import replay

pytestmark = pytest.mark.slow

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
        written = list(csv.DictReader(file))
    trials = report.leaderboard.trials
    assert len(written) == sum(max(1, len(trial.measurements)) for trial in trials)
    [failed] = [row for row in written if row["state"] == "infeasible"]
    assert (failed["configuration"], failed["failure"]) == (dead.key, "cuda_oom")
    assert (failed["concurrency"], failed["output_tok_s"]) == ("", "")
    best = report.leaderboard.best
    [at_8] = [r for r in written if r["trial"] == str(best.number) and r["concurrency"] == "8"]
    assert float(at_8["output_tok_s"]) == speed(best.configuration, 8).output_tok_s
    assert json.loads(at_8["env"]) == dict(best.configuration.env)
    assert at_8["num_steps"] == str(best.configuration.speculation.num_steps)
    assert at_8["provenance"] == "simulated"

    with Store.open("sqlite://") as store:
        again = replay(study, read_replay_table(out), store, name="s")
    assert again.leaderboard.best.configuration == best.configuration
    assert again.leaderboard.score(again.leaderboard.best) == pytest.approx(
        report.leaderboard.score(best)
    )


def test_open_loops_are_refused_rather_than_mixed_up(replayed):
    address, _, _ = replayed

    class Open:
        """The store, with a request rate in place of each concurrency."""

        def __init__(self, store):
            self.study, self.launches, self.trials = store.study, store.launches, store.trials
            self._store = store

        def measurements(self, *which, samples):
            point = OperatingPoint(request_rate=4.0)
            return [
                replace(found, measurement=replace(found.measurement, point=point))
                for found in self._store.measurements(*which, samples=samples)
            ]

    with (
        Store.open_to_read(address) as store,
        pytest.raises(OpenLoopError, match="study s: a table has no open loops"),
    ):
        list(rows(Open(store), "s"))


@pytest.mark.parametrize(
    ("storage", "name", "output", "said"),
    [
        (None, "s", "no/such/t.csv", "No such file"),
        (None, "other", "t.csv", "no study named 'other'"),
        ("sqlite:///none.db", "s", "t.csv", "no database"),
        ("postgresql://nobody@127.0.0.1:1/x", "s", "t.csv", "cannot open the database"),
        ("nonsense", "s", "t.csv", "not a database address"),
    ],
)
def test_what_cannot_be_read_or_written_is_said(replayed, storage, name, output, said):
    address, _, _ = replayed
    done = subprocess.run(
        [
            *(sys.executable, ROOT / "benchmarks" / "table.py", "--study", name),
            *("--storage", storage or address, "--output", output),
        ],
        cwd=Path(address.removeprefix("sqlite:///")).parent,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_figure_without_an_end_is_an_empty_cell():
    assert [shown(value) for value in (math.inf, math.nan, 1 / 3, 4)] == ["", "", "0.333333", 4]


def test_the_clocks_parts_are_those_of_the_mean_cycle():
    def batch(size: int, cycles: int, **total_ms: float) -> BatchCycles:
        parts = {name: PartTime(cycles, ms / 1000) for name, ms in total_ms.items()}
        return BatchCycles(size, PartTime(cycles, sum(total_ms.values()) / 1000), parts)

    plain = CycleTimes("plugin", (batch(1, 10, verify=40.0, rest=2.0),))
    assert of_cycle(plain) == {
        "verify_ms": pytest.approx(4.0),
        "rest_ms": pytest.approx(0.2),
        "draft_ms": None,
        "draft_extend_ms": None,
    }
    two = CycleTimes(
        "plugin",
        (
            batch(1, 10, draft=5.0, draft_extend=3.0, verify=40.0, rest=2.0),
            batch(2, 30, draft=30.0, draft_extend=18.0, verify=180.0, rest=9.0),
        ),
    )
    assert of_cycle(two) == {
        "draft_ms": pytest.approx(35 / 40),
        "draft_extend_ms": pytest.approx(21 / 40),
        "verify_ms": pytest.approx(220 / 40),
        "rest_ms": pytest.approx(11 / 40),
    }
    assert of_cycle(None) == of_cycle(CycleTimes("plugin", ())) == {}
