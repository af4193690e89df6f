"""Databases of every released schema open, are upgraded, and answer as they did."""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import MetaData, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from results import tables
from results.database import resolve_url
from results.errors import StoreError, StoreOutdated
from results.migrations import HEAD, configuration, current_version
from results.optuna_mirror import MirrorTrial, OptunaMirror
from results.records import (
    BatchCycles,
    CycleTimes,
    LaunchState,
    Measurement,
    PartTime,
    Purpose,
    RequestSample,
    TrialState,
)
from results.store import Store

from .databases import OURS, connected, optuna_trials, others

DATABASES = Path(__file__).parents[1] / "data" / "databases"
SCHEMAS = ("0001", "0002", "0003")
NEW_FIGURES = {
    "ttft_p99_ms", "tpot_p99_ms", "e2e_p99_ms", "chunk_p50_ms", "chunk_p95_ms",
    "tokens_per_chunk", "user_tok_s", "request_s", "client_cpu_share",
}  # fmt: skip


def restore(schema, path):
    """An SQLite database as it was written by the tuner of that time."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript((DATABASES / f"schema_{schema}.sql").read_text())
    return f"sqlite:///{path}"


def restore_into_postgres(schema, path, address):
    """The same rows in PostgreSQL, in tables that the revisions up to that schema made."""
    target = create_engine(resolve_url(address), poolclass=NullPool)
    with connected(restore(schema, path)) as old, target.begin() as new:
        config = configuration()
        config.attributes["connection"] = new
        command.upgrade(config, schema)
        rows_of, here = MetaData(), MetaData()
        rows_of.reflect(old, only=[table.name for table in tables.metadata.sorted_tables])
        here.reflect(new)
        for table in tables.metadata.sorted_tables:
            rows = [
                dict(row) for row in old.execute(rows_of.tables[table.name].select()).mappings()
            ]
            if rows:
                new.execute(here.tables[table.name].insert(), rows)
            if "id" in table.c:
                new.execute(
                    text(
                        f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "
                        f"(SELECT max(id) FROM {table.name}))"
                    )
                )
    return address


@pytest.fixture(
    params=[f"{kind}-{schema}" for kind in ("sqlite", "postgres") for schema in SCHEMAS]
)
def old_and_schema(request, tmp_path):
    kind, schema = request.param.split("-")
    if kind == "sqlite":
        return restore(schema, tmp_path / "old.db"), schema
    address = request.getfixturevalue("empty_postgres_address")
    return restore_into_postgres(schema, tmp_path / "old.db", address), schema


@pytest.fixture
def old(old_and_schema):
    return old_and_schema[0]


@pytest.fixture
def before(old_and_schema):
    """What the tuner of that time answered, asked by itself: by study."""
    return json.loads((DATABASES / f"schema_{old_and_schema[1]}.json").read_text())


@pytest.fixture(params=SCHEMAS)
def old_file(request, tmp_path):
    return restore(request.param, tmp_path / "old.db")


def same(now, then):
    """Whether `now` says all that `then` said; it may say more."""
    if isinstance(then, dict):
        return all(key in now and same(now[key], value) for key, value in then.items())
    if isinstance(then, list):
        return len(now) == len(then) and all(map(same, now, then))
    return now == then and type(now) is type(then)


def plain(record):
    return json.loads(json.dumps(dataclasses.asdict(record)))


def test_the_fixtures_are_of_the_old_schemas(old_and_schema):
    old, schema = old_and_schema
    with connected(old) as connection:
        assert current_version(connection) == schema
        columns = {column["name"] for column in inspect(connection).get_columns("tuner_requests")}
        assert ("chunks" in columns) == (schema > "0001")
        launches = {column["name"] for column in inspect(connection).get_columns("tuner_launches")}
        assert ("imported_from" in launches) == (schema > "0002")
        windows = {
            column["name"] for column in inspect(connection).get_columns("tuner_measurements")
        }
        assert "cycle" not in windows


def test_they_answer_as_they_did(old, before):
    with Store.open(old) as store:
        assert {study.name for study in store.studies()} == set(before)
        for name, then in before.items():
            study = store.study(name)
            assert same(dataclasses.asdict(study), then["study"])
            trials = store.trials(study.id, samples=True)
            assert same([plain(trial) for trial in trials], then["trials"])
            launches = store.launches(study.id)
            assert same([plain(launch) for launch in launches], then["launches"])
            assert store.launches_spent(study.id) == then["launches_spent"]
            assert [store.server_info(study.id, t.number) for t in trials] == then["server_info"]
        old_trials = store.trials(store.study("old").id, samples=True)
        assert sum(len(m.samples) for t in old_trials for m in t.measurements) > 0


def test_what_was_not_known_then_is_not_known(old_and_schema):
    old, schema = old_and_schema
    with Store.open(old) as store:
        for study in store.studies():
            assert study.base_dir == ("/studies" if schema > "0002" else "")
            assert study.forked_from is None
            for launch in store.launches(study.id):
                assert (launch.machine is not None) == (schema > "0002")
                assert launch.imported_from is None
                assert launch.effective_environment == ()
                if schema < "0003":
                    assert launch.log_digest is None
            for trial in store.trials(study.id):
                assert all(measurement.cycle is None for measurement in trial.measurements)


def test_what_was_not_measured_at_first_is_no_number(tmp_path):
    with Store.open(restore("0001", tmp_path / "old.db")) as store:
        for trial in store.trials(store.study("old").id, samples=True):
            for measurement in trial.measurements:
                assert all(math.isnan(getattr(measurement, name)) for name in NEW_FIGURES)
                assert measurement.accept_rate is measurement.goodput_request_s is None
                assert measurement.offered_request_s is None
                assert measurement.warnings == ()
                for sample in measurement.samples:
                    assert (sample.proposed_drafts, sample.chunks) == (0, 0)
                    assert math.isnan(sample.late_s)


def test_optunas_tables_are_not_touched(old_file):
    found = others(old_file)
    assert found["trials"]
    assert found["alembic_version"]
    Store.open(old_file).close()
    assert others(old_file) == found


@pytest.fixture
def both_old(old_file):
    """Our old tables beside those of an older Optuna."""
    theirs = set(others(old_file))
    with closing(sqlite3.connect(old_file.removeprefix("sqlite:///"))) as database:
        for name in theirs:
            database.execute(f"DROP TABLE {name}")
        database.executescript((DATABASES / "optuna_3.0.6.sql").read_text())
    return old_file


# Optuna 5.0.0 leaves the connections of a storage that it refuses to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tables_of_an_older_optuna_are_its_own_to_upgrade(both_old):
    found = others(both_old)
    with Store.open(both_old) as store:
        study = store.study("old")
        ours = store.trials(study.id, samples=True), store.launches(study.id)
        assert others(both_old) == found
        with pytest.raises(StoreError, match=r"optuna storage upgrade --storage"):
            OptunaMirror(store.url, "old")
        assert others(both_old) == found
    upgraded = subprocess.run(
        [Path(sys.executable).with_name("optuna"), "storage", "upgrade", "--storage", both_old],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert upgraded.returncode == 0, upgraded.stderr
    assert [trial.value for trial in optuna_trials(both_old, "theirs")] == [1.0, 2.5]
    with Store.open(both_old) as store:
        assert (store.trials(study.id, samples=True), store.launches(study.id)) == ours
        with OptunaMirror(store.url, "old") as mirror:
            mirror.sync([MirrorTrial(t.number, t.state, value=1.0) for t in ours[0]])
    assert [trial.value for trial in optuna_trials(both_old, "old")] == [1.0] * len(ours[0])


def test_an_upgraded_database_has_the_tables_of_a_new_one(old, new_address):
    columns = []
    for address in (old, new_address):
        Store.open(address).close()
        with connected(address) as connection:
            assert current_version(connection) == HEAD
            inspector = inspect(connection)
            columns.append(
                {
                    name: {
                        (column["name"], column["type"].as_generic().__class__, column["nullable"])
                        for column in inspector.get_columns(name)
                    }
                    for name in OURS
                }
            )
    assert columns[0] == columns[1]


def test_they_take_new_records(old, new_study, intent, configuration):
    with Store.open(old) as store:
        study = store.study("old")
        first = store.trials(study.id)[0].measurements[0]
        sample = RequestSample("chat/001", 0.0, 0.1, 1.0, 9, 16, proposed_drafts=4, chunks=6)
        part = PartTime(8, 0.2, 0.025, 0.03, 1.0)
        new = dataclasses.replace(
            first,
            warnings=("few_requests: 3 answers",),
            ttft_p99_ms=71.5,
            samples=(sample,),
            cycle=CycleTimes("plugin", (BatchCycles(1, part, {"verify": part}),)),
        )
        store.claim(study.id)
        store.add_measurement(study.id, 0, 0, new, Purpose.ANCHOR)
        stored = store.measurements(study.id, 0, samples=True)[-1].measurement
        assert stored.warnings == new.warnings
        assert stored.ttft_p99_ms == 71.5
        assert stored.samples == (sample,)
        assert stored.cycle == new.cycle
        another = store.create_study(new_study("another"))
        store.add_launch(another.id, intent(1), [(configuration(1), Purpose.SEARCH)])
        fork = store.fork(study.id, new_study("fork"), [0])
        assert [launch.imported_from for launch in store.launches(fork.id)] == ["old#0"]


def test_what_a_killed_tuner_left_is_still_known(tmp_path):
    with Store.open(restore("0002", tmp_path / "old.db")) as store:
        left = store.unfinished(store.study("cut").id)
        (launch,) = left.launches
        assert launch.state is LaunchState.RUNNING
        assert launch.process is not None
        assert [trial.state for trial in left.trials] == [TrialState.RUNNING] * len(launch.trials)


def test_to_read_only_says_who_must_upgrade(old):
    with pytest.raises(StoreOutdated, match=r"schema 000\d.*`tuner show`"):
        Store.open(old, read_only=True)
    with Store.open_to_read(old) as store:
        assert store.study("old").name == "old"
        assert store.read_only


def test_the_command_shows_it(old, before, capsys):
    from tuner.cli import app as cli

    assert cli.run(["show", "--study", "old", "--storage", old, "--json"]) == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    then = before["old"]["trials"]
    assert [t["output_tok_s"] for t in trials] == [
        t["measurements"][0]["output_tok_s"] for t in then
    ]
    assert all(t["state"] == TrialState.COMPLETE for t in trials)
    assert trials[0]["points"][0]["ttft_p99_ms"] == then[0]["measurements"][0].get("ttft_p99_ms")


def test_every_new_figure_is_known_here():
    """A figure that a later revision adds belongs into this test, and into a new fixture."""
    plain = {
        field.name
        for field in dataclasses.fields(Measurement)
        if isinstance(field.default, float) and math.isnan(field.default)
    }
    assert plain == NEW_FIGURES


def test_every_schema_but_the_newest_has_a_fixture():
    assert [f"{number:04d}" for number in range(1, int(HEAD))] == list(SCHEMAS)
