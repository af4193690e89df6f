"""Databases of every released schema open, are upgraded, and answer as they did."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from results import Store, tables
from results.migrations import HEAD, VERSION_TABLE, current_version
from results.records import Measurement, Purpose, RequestSample, TrialState

DATABASES = Path(__file__).parents[1] / "data" / "databases"
OURS = {table.name for table in tables.metadata.sorted_tables} | {VERSION_TABLE}
NEW_FIGURES = {
    "ttft_p99_ms", "tpot_p99_ms", "e2e_p99_ms", "chunk_p50_ms", "chunk_p95_ms",
    "tokens_per_chunk", "user_tok_s", "request_s", "client_cpu_share",
}  # fmt: skip


@pytest.fixture
def old(tmp_path):
    """A study of schema 0001, as it was written by the tuner of that time."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((DATABASES / "schema_0001.sql").read_text())
    return f"sqlite:///{path}"


@pytest.fixture(scope="module")
def before():
    """What the tuner of that time answered, asked by itself."""
    return json.loads((DATABASES / "schema_0001.json").read_text())


def others(address):
    """Everything in the tables that are not ours."""
    engine = create_engine(address)
    with engine.connect() as connection:
        names = set(inspect(connection).get_table_names()) - OURS
        found = {
            name: [tuple(row) for row in connection.execute(text(f"SELECT * FROM {name}"))]
            for name in names
        }
    engine.dispose()
    return found


def same(now, then):
    """Whether `now` says all that `then` said; it may say more."""
    if isinstance(then, dict):
        return all(key in now and same(now[key], value) for key, value in then.items())
    if isinstance(then, list):
        return len(now) == len(then) and all(map(same, now, then))
    return now == then and type(now) is type(then)


def test_the_fixture_is_of_the_old_schema(old):
    engine = create_engine(old)
    with engine.connect() as connection:
        assert current_version(connection) == "0001"
        columns = {column["name"] for column in inspect(connection).get_columns("tuner_requests")}
        assert "chunks" not in columns
    engine.dispose()


def test_it_answers_as_it_did(old, before):
    with Store.open(old) as store:
        study = store.study("old")
        assert same(dataclasses.asdict(study), before["study"])
        trials = store.trials(study.id, samples=True)
        now = json.loads(json.dumps([dataclasses.asdict(trial) for trial in trials]))
        assert same(now, before["trials"])
        launches = [dataclasses.asdict(launch) for launch in store.launches(study.id)]
        assert same(json.loads(json.dumps(launches)), before["launches"])
        assert store.launches_spent(study.id) == before["launches_spent"]
        assert [store.server_info(study.id, t.number) for t in trials] == before["server_info"]
        assert sum(len(m.samples) for t in trials for m in t.measurements) > 0


def test_what_was_not_measured_then_is_no_number(old):
    with Store.open(old) as store:
        for trial in store.trials(store.study("old").id, samples=True):
            for measurement in trial.measurements:
                assert all(math.isnan(getattr(measurement, name)) for name in NEW_FIGURES)
                assert measurement.accept_rate is measurement.goodput_request_s is None
                assert measurement.offered_request_s is None
                assert measurement.warnings == ()
                for sample in measurement.samples:
                    assert (sample.proposed_drafts, sample.chunks) == (0, 0)
                    assert math.isnan(sample.late_s)


def test_optunas_tables_are_not_touched(old):
    found = others(old)
    assert found["trials"]
    assert found["alembic_version"]
    Store.open(old).close()
    assert others(old) == found


def test_an_upgraded_database_has_the_tables_of_a_new_one(old, tmp_path):
    new = f"sqlite:///{tmp_path / 'new.db'}"
    columns = []
    for address in (old, new):
        Store.open(address).close()
        engine = create_engine(address)
        with engine.connect() as connection:
            assert current_version(connection) == HEAD
            inspector = inspect(connection)
            columns.append(
                {
                    name: {
                        (column["name"], str(column["type"]), column["nullable"])
                        for column in inspector.get_columns(name)
                    }
                    for name in OURS
                }
            )
        engine.dispose()
    assert columns[0] == columns[1]


def test_it_takes_new_measurements(old):
    with Store.open(old) as store:
        study = store.study("old")
        first = store.trials(study.id)[0].measurements[0]
        sample = RequestSample("chat/001", 0.0, 0.1, 1.0, 9, 16, proposed_drafts=4, chunks=6)
        new = dataclasses.replace(
            first, warnings=("few_requests: 3 answers",), ttft_p99_ms=71.5, samples=(sample,)
        )
        store.claim(study.id)
        store.add_measurement(study.id, 0, 0, new, Purpose.ANCHOR)
        stored = store.measurements(study.id, 0, samples=True)[-1].measurement
        assert stored.warnings == new.warnings
        assert stored.ttft_p99_ms == 71.5
        assert stored.samples == (sample,)


def test_the_command_shows_it(old, before):
    shown = subprocess.run(
        [sys.executable, "-m", "tuner", "show", "--study", "old", "--storage", old, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert shown.returncode == 0, shown.stderr
    trials = json.loads(shown.stdout)["trials"]
    assert [t["output_tok_s"] for t in trials] == [
        t["measurements"][0]["output_tok_s"] for t in before["trials"]
    ]
    assert all(t["state"] == TrialState.COMPLETE for t in trials)
    assert trials[0]["points"][0]["ttft_p99_ms"] is None


def test_every_new_figure_is_known_here():
    """A figure that a later revision adds belongs into this test, and into a new fixture."""
    plain = {
        field.name
        for field in dataclasses.fields(Measurement)
        if isinstance(field.default, float) and math.isnan(field.default)
    }
    assert plain == NEW_FIGURES
