"""Databases as others see them: SQLAlchemy and Optuna without the store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import optuna
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

from results import tables
from results.database import resolve_url
from results.migrations import VERSION_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

OURS = {table.name for table in tables.metadata.sorted_tables} | {VERSION_TABLE}


@contextmanager
def connected(address: str) -> Iterator[Connection]:
    """A connection that is committed in the end."""
    engine = create_engine(resolve_url(address), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


def table_names(address: str) -> set[str]:
    with connected(address) as connection:
        return set(inspect(connection).get_table_names())


def others(address: str) -> dict[str, list[tuple]]:
    """Everything in the tables that are not ours."""
    with connected(address) as connection:
        return {
            name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}"))))
            for name in set(inspect(connection).get_table_names()) - OURS
        }


@contextmanager
def optuna_storage(address: str) -> Iterator[optuna.storages.RDBStorage]:
    """Optuna's tables there, made if need be; nothing of it is left open."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = resolve_url(address).render_as_string(hide_password=False)
    storage = optuna.storages.RDBStorage(url.replace("{", "{{").replace("}", "}}"))
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()
        optuna.logging.set_verbosity(before)


def optuna_trials(address: str, name: str) -> list[optuna.trial.FrozenTrial]:
    """The trials of a study as Optuna has them."""
    with optuna_storage(address) as storage:
        return optuna.load_study(study_name=name, storage=storage).trials
