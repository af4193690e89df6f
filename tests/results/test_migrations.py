from __future__ import annotations

import logging
import subprocess
import sys
import warnings

import optuna
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from results import tables
from results.errors import StoreVersionError
from results.migrations import HEAD, VERSION_TABLE, configuration
from results.store import Store

from .databases import OURS, connected, optuna_storage, optuna_trials, others, table_names


def test_the_stated_head_is_the_newest_revision():
    assert ScriptDirectory.from_config(configuration()).get_heads() == [HEAD]


def test_an_empty_database_gets_our_tables(new_address):
    Store.open(new_address).close()
    assert table_names(new_address) == OURS


def test_revisions_and_tables_say_the_same(new_address):
    with Store.open(new_address) as store, store._engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": VERSION_TABLE}
        )
        assert compare_metadata(context, tables.metadata) == []


def test_in_memory_stores_have_the_same_tables():
    with Store.open("sqlite://") as store:
        assert set(inspect(store._engine).get_table_names()) == OURS - {VERSION_TABLE}


def test_opening_again_changes_nothing(new_address, new_study):
    with Store.open(new_address) as store:
        study = store.create_study(new_study())
    with Store.open(new_address) as store:
        assert store.studies() == (study,)


def test_optunas_tables_are_left_as_they_are(new_address):
    with optuna_storage(new_address) as storage:
        study = optuna.create_study(storage=storage, study_name="mine")
        study.add_trial(optuna.trial.create_trial(value=1.0))
    before = others(new_address)
    assert {"studies", "trials", "alembic_version"} <= set(before)
    Store.open(new_address).close()
    assert others(new_address) == before
    assert set(before) | OURS == table_names(new_address)
    assert [trial.value for trial in optuna_trials(new_address, "mine")] == [1.0]


def test_a_newer_database_is_refused_and_left_alone(new_address):
    with Store.open(new_address) as store, store._writing() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StoreVersionError, match=r"newer tuner .*9999.*update sglang-tuner"):
        Store.open(new_address)
    with connected(new_address) as connection:
        assert connection.execute(text(f"SELECT * FROM {VERSION_TABLE}")).scalar() == "9999"


def test_a_migration_that_fails_leaves_nothing(new_address):
    with connected(new_address) as connection:
        connection.execute(text("CREATE TABLE tuner_requests (somebody TEXT)"))
    with pytest.raises(Exception, match=r'tuner_requests"? already exists'):
        Store.open(new_address)
    assert table_names(new_address) == {"tuner_requests"}


OPEN = """
import sys
from results.store import Store
import alembic.command
print("ready", flush=True)
sys.stdin.readline()
Store.open(sys.argv[1]).close()
"""


def test_processes_that_open_a_new_database_at_once_all_succeed(new_address):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, new_address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
    assert [child.returncode for child in children] == [0, 0, 0]
    assert table_names(new_address) == OURS


def test_paths_with_odd_characters_work(tmp_path, new_study):
    from results.optuna_mirror import OptunaMirror

    folder = tmp_path / "100% {mine} #1"
    folder.mkdir()
    with Store.open(f"sqlite:///{folder}/tuner.db") as store:
        store.create_study(new_study())
        OptunaMirror(store.url, "kimi")
    assert (folder / "tuner.db").exists()


def test_alembic_is_not_loaded_for_a_current_database(new_address):
    Store.open(new_address).close()
    code = (
        "import sys; from results.store import Store; Store.open(sys.argv[1]).close(); "
        "assert not {'alembic', 'optuna'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, new_address], check=True)


def test_logging_and_warnings_are_left_as_they_are(sqlite_address):
    from results.optuna_mirror import OptunaMirror

    before = (logging.root.level, list(logging.root.handlers), list(warnings.filters))
    with Store.open(sqlite_address) as store:
        OptunaMirror(store.url, "kimi")
    assert (logging.root.level, list(logging.root.handlers), list(warnings.filters)) == before
