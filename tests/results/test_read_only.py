"""To ask a database takes no permission to write it, and writes nothing."""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from results.errors import StoreError, StoreMissing, StoreVersionError
from results.migrations import VERSION_TABLE
from results.records import Purpose
from results.store import Store

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE = 1

READ = """
import sys
from results.store import Store
from results.errors import StoreError
try:
    with Store.open(sys.argv[1], read_only=True) as store:
        print(*(len(store.trials(study.id)) for study in store.studies()))
except StoreError as error:
    print(type(error).__name__, error)
"""


def _obey_permissions() -> None:
    """Root may write everything, until this is taken from it."""
    if os.geteuid() == 0 and _LIBC.prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE) != 0:
        raise OSError(ctypes.get_errno(), "root's right to write everything cannot be dropped")


def read(address: str) -> str:
    """What a process without rights of its own reads there."""
    done = subprocess.run(
        [sys.executable, "-c", READ, address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        preexec_fn=_obey_permissions,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path):
    """A folder that is made read-only, and can be deleted again."""
    folder = tmp_path / "100% {kept} #1"
    folder.mkdir()
    yield folder
    folder.chmod(0o755)


def lock(folder: Path) -> None:
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)


@pytest.fixture
def filled(folder, new_study, intent, configuration):
    path = folder / "tuner.db"
    with Store.open(f"sqlite:///{path}") as store:
        study = store.create_study(new_study())
        store.add_launch(study.id, intent(1), [(configuration(n), Purpose.SEARCH) for n in (1, 2)])
    return path


def test_the_test_can_fail(filled):
    lock(filled.parent)
    refused = subprocess.run(
        [sys.executable, "-c", READ.replace(", read_only=True", ""), f"sqlite:///{filled}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        preexec_fn=_obey_permissions,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert refused.stdout.startswith("StoreError cannot open the database")


def test_a_file_in_a_folder_that_may_not_be_written(filled):
    lock(filled.parent)
    before = filled.read_bytes()
    assert read(f"sqlite:///{filled}") == "2"
    assert filled.read_bytes() == before
    assert [file.name for file in filled.parent.iterdir()] == ["tuner.db"]


def test_a_file_that_somebody_else_is_writing(filled, intent, configuration):
    with Store.open(f"sqlite:///{filled}") as store:
        store.add_launch(1, intent(3), [(configuration(3), Purpose.SEARCH)])
        # What was just stored is still in the file beside it.
        lock(filled.parent)
        assert read(f"sqlite:///{filled}") == "3"


def test_what_cannot_be_seen_is_not_left_out(filled, intent, configuration, tmp_path):
    with Store.open(f"sqlite:///{filled}") as store:
        store.add_launch(1, intent(3), [(configuration(3), Purpose.SEARCH)])
        torn = tmp_path / "torn"
        shutil.copytree(filled.parent, torn)
    (torn / "tuner.db-shm").unlink()
    lock(torn)
    try:
        said = read(f"sqlite:///{torn / 'tuner.db'}")
    finally:
        torn.chmod(0o755)
    assert "last records are in tuner.db-wal" in said
    assert "copy both files" in said


def test_a_role_that_may_only_select(postgres, postgres_address, new_study):
    from sqlalchemy import make_url

    with Store.open(postgres_address) as store:
        store.create_study(new_study())
        with store._writing() as connection:
            connection.execute(text("CREATE ROLE reader LOGIN PASSWORD 'reader'"))
            connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"))
    url = make_url(postgres_address).set(username="reader", password="reader")
    address = url.render_as_string(hide_password=False)
    try:
        assert read(address) == "0"
        with Store.open(address) as store, pytest.raises(StoreError, match="permission denied"):
            store.create_study(new_study("another"))
    finally:
        with Store.open(postgres_address) as store, store._writing() as connection:
            connection.execute(text("DROP OWNED BY reader"))
            connection.execute(text("DROP ROLE reader"))


def test_it_refuses_to_write(lasting_address, new_study):
    with Store.open(lasting_address) as store:
        study = store.create_study(new_study())
    with Store.open(lasting_address, read_only=True) as store:
        assert store.studies() == (study,)
        with pytest.raises(StoreError, match="opened read-only"):
            store.add_work(study.id, 1.0)
        with pytest.raises(Exception, match=r"read-?only"), store._engine.begin() as connection:
            connection.execute(text("DELETE FROM tuner_studies"))


def test_where_there_is_nothing_to_read(sqlite_address, new_address):
    for address in (sqlite_address + "x", new_address, "sqlite://"):
        if address == new_address and address.startswith("sqlite"):
            with closing(sqlite3.connect(address.removeprefix("sqlite:///"))) as database:
                database.execute("CREATE TABLE others (x)")
        with pytest.raises(StoreMissing):
            Store.open(address, read_only=True)
        with pytest.raises(StoreMissing):
            Store.open_to_read(address)
    assert not Path((sqlite_address + "x").removeprefix("sqlite:///")).exists()


def test_what_is_no_database(tmp_path):
    (tmp_path / "notes.db").write_text("not a database, but somebody's notes\n" * 100)
    with pytest.raises(StoreError, match="is not an SQLite database"):
        Store.open(f"sqlite:///{tmp_path / 'notes.db'}", read_only=True)


def test_a_newer_schema_is_refused(lasting_address):
    with Store.open(lasting_address) as store, store._writing() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StoreVersionError, match="update sglang-tuner"):
        Store.open_to_read(lasting_address)
