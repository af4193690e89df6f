"""Transactions and errors shared by reading and writing."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, bindparam, func, insert, select
from sqlalchemy.exc import DBAPIError

from results import tables
from results.database import WRITE_OPTION, in_memory, shown_address
from results.errors import StoreError, StudyNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine, Table

# Build statements once, since building one costs more than executing it.
_STUDY = bindparam("the_study", type_=Integer)
_NUMBER = bindparam("the_number", type_=Integer)
_LOCK: Final = select(tables.studies.c.id).where(tables.studies.c.id == _STUDY).with_for_update()
_NEXT: Final = {
    table: select(func.max(table.c.number)).where(table.c.study_id == _STUDY)
    for table in (tables.launches, tables.trials)
}
_ROW: Final = {
    table: select(table.c.id).where(table.c.study_id == _STUDY, table.c.number == _NUMBER)
    for table in (tables.launches, tables.trials)
}
_INSERT: Final = {table: insert(table) for table in tables.metadata.sorted_tables}


class Connected:
    """Holds the engine; base of the parts of `results.store.Store`.

    Attributes:
        url: Full address with its password, for Optuna's storage.
        shown: Address without its password.
        read_only: Whether writing is not allowed.
    """

    def __init__(self, engine: Engine, *, read_only: bool = False) -> None:
        self.read_only = read_only
        self._engine = engine
        self._writer = engine.execution_options(**{WRITE_OPTION: True})
        self._reader = engine
        if engine.dialect.name == "postgresql":
            # A query may need several statements. SQLite's transactions are snapshots.
            self._reader = engine.execution_options(isolation_level="REPEATABLE READ")
        self.shown = shown_address(engine.url)
        self.url = engine.url.render_as_string(hide_password=False)
        named = str(engine.url.database or "")
        on_disk = engine.dialect.name == "sqlite" and not in_memory(engine.url)
        self._file = named if on_disk and not named.startswith("file:") else None
        self._inode: int | None = None if self._file is None else _inode_of(self._file)

    def _check_file(self) -> None:
        """Raise if the SQLite file was deleted, which SQLite does not notice."""
        if self._file is None:
            return
        inode = _inode_of(self._file)
        if inode is None or (self._inode is not None and inode != self._inode):
            raise StoreError(
                f"the database file {self._file} was removed or replaced while it was in use; "
                "its results are lost"
            )
        self._inode = inode

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Yield a consistent view of the database."""
        try:
            with self._reader.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise StoreError(f"cannot read the database {self.shown}: {error.orig}") from error

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Yield a transaction that is durable at the end of the block."""
        if self.read_only:
            raise StoreError(f"the database {self.shown} was opened read-only")
        self._check_file()
        try:
            with self._writer.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise StoreError(
                f"cannot write to the database {self.shown} ({error.orig}); check the disk and "
                "other programs that have it open, then resume"
            ) from error


def _inode_of(file: str) -> int | None:
    try:
        return Path(file).stat().st_ino
    except OSError:
        return None


def lock_study(connection: Connection, study_id: int) -> None:
    """Let other writers of the study wait for this transaction (SQLite does so by default).

    Raises:
        StudyNotFound: The study does not exist.
    """
    if connection.execute(_LOCK, {"the_study": study_id}).first() is None:
        raise no_study(study_id)


def no_study(study_id: int) -> StudyNotFound:
    """Make the error for a missing study."""
    return StudyNotFound(f"there is no study with id {study_id}; it may have been deleted")


def next_number(connection: Connection, table: Table, study_id: int) -> int:
    """Next launch or trial number of a study, consecutive from 0."""
    highest = connection.execute(_NEXT[table], {"the_study": study_id}).scalar_one()
    return 0 if highest is None else int(highest) + 1


def insert_row(connection: Connection, table: Table, values: dict[str, Any]) -> int:
    """Insert a row and return its id."""
    key = connection.execute(_INSERT[table], values).inserted_primary_key
    return int(key[0]) if key else 0


def row_id(connection: Connection, table: Table, study_id: int, number: int) -> int:
    """Return the id of a study's launch or trial.

    Raises:
        StoreError: The study has no such launch or trial.
    """
    found = connection.execute(
        _ROW[table], {"the_study": study_id, "the_number": number}
    ).scalar_one_or_none()
    if found is None:
        kind = "launch" if table is tables.launches else "trial"
        raise StoreError(f"study {study_id} has no {kind} {number}")
    return int(found)
