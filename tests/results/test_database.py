from __future__ import annotations

import sqlite3
import threading
import time

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from results import tables
from results.database import address_of, resolve_url, shown_address
from results.errors import StoreError, StoreMissing
from results.store import Store


def test_a_relative_path_is_resolved_once(tmp_path, monkeypatch, new_study):
    monkeypatch.chdir(tmp_path)
    with Store.open("sqlite:///tuner.db") as store:
        monkeypatch.chdir("/")
        store.create_study(new_study())
        assert store.url == f"sqlite:///{tmp_path / 'tuner.db'}"
        assert not store.in_memory
    with Store.open(f"sqlite:///{tmp_path / 'tuner.db'}") as store:
        assert store.study("kimi").name == "kimi"


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///:memory:"])
def test_in_memory_stores_are_their_own(address, new_study):
    with Store.open(address) as one, Store.open(address) as other:
        assert one.in_memory
        one.create_study(new_study())
        assert other.studies() == ()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_gets_the_driver_of_our_extra(scheme):
    url = resolve_url(f"{scheme}://me:secret@box/tuner")
    assert url.render_as_string(hide_password=False) == "postgresql+psycopg://me:secret@box/tuner"


@pytest.mark.parametrize(
    "address",
    [
        "tuner:hushhush@box/t",
        "postgresql//tuner:hushhush@box/t",
        "mysql://me:hushhush@box/t",
        "sqlite://me:hushhush@box/t",
        "//box/t?password=hushhush",
    ],
)
def test_an_address_that_is_none_is_told_without_its_password(address):
    with pytest.raises(StoreError) as caught:
        resolve_url(address)
    assert "hushhush" not in str(caught.value)


def test_an_address_is_shown_without_a_password_wherever_it_stands():
    address = "postgresql://me:one@box/t?password=two&sslpassword=three&sslmode=require"
    shown = shown_address(resolve_url(address))
    assert "me:***@box/t?" in shown
    assert "sslmode=require" in shown
    assert not {word for word in ("one", "two", "three") if word in shown}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tuner.db", "not a database address; use sqlite:///FILE"),
        ("mysql://box/tuner", "mysql databases are not supported"),
        ("sqlite+aiosqlite:///x.db", r"sqlite\+aiosqlite databases are not supported"),
        ("sqlite:////nowhere/at/all/tuner.db", "its folder does not exist"),
    ],
)
def test_addresses_that_cannot_work_say_why(address, message):
    with pytest.raises(StoreError, match=message):
        Store.open(address)


def test_a_file_is_made_only_on_demand(sqlite_address, tmp_path):
    with pytest.raises(StoreMissing, match=r"no database at .*tuner\.db"):
        Store.open(sqlite_address, create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_says_what_can_be_done(tmp_path):
    whole, cut = tmp_path / "t.db", tmp_path / "cut.db"
    Store.open(f"sqlite:///{whole}").close()
    cut.write_bytes(whole.read_bytes()[:20480])
    for how in ({}, {"read_only": True}):
        with pytest.raises(StoreError, match=r"malformed.*restore a backup.*'\.recover'"):
            Store.open(f"sqlite:///{cut}", **how)


@pytest.mark.parametrize("name", ["a b.db", "50%20.db", "what?.db", "it's $X `q` ü#&.db"])
def test_any_file_has_an_address(tmp_path, name):
    address = address_of(tmp_path / name)
    Store.open(address).close()
    assert (tmp_path / name).exists()
    with Store.open_to_read(address) as store:
        assert store.studies() == ()


def test_what_is_behind_a_question_mark_would_be_lost(tmp_path):
    with pytest.raises(StoreError, match="write %3F"):
        Store.open(f"sqlite:///{tmp_path}/what?.db")
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_left_alone(tmp_path):
    notes = tmp_path / "tuner.db"
    notes.write_text("not a database, but somebody's notes\n" * 100)
    before = notes.read_bytes()
    with pytest.raises(StoreError, match="is not an SQLite database"):
        Store.open(f"sqlite:///{notes}")
    assert notes.read_bytes() == before


def test_sqlite_is_set_up_to_lose_nothing(sqlite_address, tmp_path):
    with Store.open(sqlite_address) as store, store._engine.connect() as connection:
        found = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "busy_timeout": 60_000,
    }


def test_a_write_waits_for_another_writer(sqlite_address, tmp_path, new_study):
    with Store.open(sqlite_address) as store:
        study = store.create_study(new_study())
        other = sqlite3.connect(
            tmp_path / "tuner.db", isolation_level=None, check_same_thread=False
        )
        other.execute("BEGIN IMMEDIATE")
        released = []

        def release():
            time.sleep(0.3)
            released.append(True)
            other.execute("ROLLBACK")

        thread = threading.Thread(target=release)
        thread.start()
        store.add_work(study.id, 1.0)
        assert released
        thread.join()
        other.close()
        assert store.study("kimi").work_s == 1.0


def test_a_deleted_study_takes_its_records_along(store, study, intent, configuration, measurement):
    from results.records import Purpose, RequestSample

    samples = (RequestSample("a", 0.0, 0.1, 0.2, 1, 1),)
    store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH)])
    store.add_measurement(study.id, 0, 0, measurement(1.0, samples=samples), Purpose.SEARCH)
    with store._writing() as connection:
        connection.execute(tables.studies.delete())
        left = {
            table.name: connection.execute(table.select()).all()
            for table in tables.metadata.sorted_tables
        }
    assert left == {name: [] for name in left}


def test_a_failed_write_is_told_with_its_cause(store, study):
    with store._writing() as connection:
        connection.execute(text("DROP TABLE tuner_requests"))
        connection.execute(text("ALTER TABLE tuner_studies RENAME TO gone"))
    missing = r'(no such table: tuner_studies|relation "tuner_studies" does not exist)'
    with pytest.raises(StoreError, match=rf"cannot write to the database .* \({missing}"):
        store.add_work(study.id, 1.0)
    with pytest.raises(StoreError, match=f"cannot read the database .*{missing}"):
        store.studies()


def test_tables_are_ours_by_name_and_portable():
    dialect = postgresql.dialect()
    for table in tables.metadata.sorted_tables:
        assert table.name.startswith("tuner_")
        statements = [CreateTable(table), *(CreateIndex(index) for index in table.indexes)]
        for statement in statements:
            # PostgreSQL cuts longer names short, and then two may be one.
            names = str(statement.compile(dialect=dialect)).replace("(", " ").split()
            assert all(len(name.strip('",')) <= 63 for name in names)
