"""Check and copy whole databases."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, text

from results.database import Connected
from results.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OPTUNAS: Final = frozenset({"studies", "trials", "study_user_attributes"})

_MOST: Final = 20
"""Lines of damage that are worth reading."""


class Upkeep(Connected):
    """Part of `results.store.Store` that checks and copies the database."""

    def damage(self) -> tuple[str, ...]:
        """Errors that SQLite finds in its file (pages, indexes, references); empty if sound.

        PostgreSQL has no such check: its server verifies pages and constraints itself.
        """
        if self._engine.dialect.name != "sqlite":
            return ()
        with self._reading() as connection:
            found = [
                str(row[0])
                for row in connection.execute(text(f"PRAGMA integrity_check({_MOST})"))
                if row[0] != "ok"
            ]
            found += [
                f"row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there"
                for row in connection.execute(text("PRAGMA foreign_key_check")).fetchmany(_MOST)
            ]
        return tuple(found)

    def optuna_states(self) -> dict[str, dict[int, str]]:
        """States of trials in Optuna's tables, in Optuna's words, for studies of the mirror.

        Uses plain SQL, because Optuna writes when it opens a database.

        Returns:
            State of each trial by number, by study. Empty without Optuna's tables.
        """
        with self._reading() as connection:
            if not set(inspect(connection).get_table_names()) >= _OPTUNAS:
                return {}
            states: dict[str, dict[int, str]] = defaultdict(dict)
            for name, number, state in connection.execute(
                text(
                    "SELECT studies.study_name, trials.number, CAST(trials.state AS TEXT) "
                    "FROM studies "
                    "JOIN study_user_attributes marks ON marks.study_id = studies.study_id "
                    "AND marks.key = 'tuner_study' "
                    "LEFT JOIN trials ON trials.study_id = studies.study_id "
                    "ORDER BY trials.number"
                )
            ):
                of_study = states[name]
                if number is not None:
                    of_study[number] = state
        return dict(states)

    def optuna_names(self) -> frozenset[str]:
        """Names of all studies in Optuna's tables."""
        with self._reading() as connection:
            if not inspect(connection).has_table("studies"):
                return frozenset()
            return frozenset(connection.execute(text("SELECT study_name FROM studies")).scalars())

    def copy_file(self, file: Path) -> None:
        """Copy an SQLite database with Optuna's tables while others write it.

        Raises:
            StoreError: `file` exists, cannot be written, or the copy is not sound.
        """
        with whole_file(file) as part:
            raw = self._engine.raw_connection()
            try:
                source = raw.driver_connection
                if not isinstance(source, sqlite3.Connection):
                    raise TypeError("only an SQLite database is a file")
                with contextlib.closing(sqlite3.connect(part)) as target:
                    source.backup(target)
                    answer = target.execute("PRAGMA integrity_check").fetchone()[0]
            except sqlite3.Error as error:
                raise StoreError(f"cannot copy {self.shown} to {file}: {error}") from error
            finally:
                raw.close()
            if answer != "ok":
                raise StoreError(
                    f"{self.shown} is damaged ({answer}), so {file} was not written; "
                    "run `tuner db check` for details"
                )


@contextlib.contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield an empty SQLite file beside `file`, which becomes `file` if the block succeeds.

    Raises:
        StoreError: `file` exists, or its folder cannot be written.
    """
    if file.exists():
        raise StoreError(f"{file} exists; choose another file")
    part = file.with_name(f"{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        part.touch()
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror or error}") from error
    try:
        yield part
        try:
            with contextlib.closing(sqlite3.connect(part)) as database:
                # Keep a single file, without WAL files beside it.
                database.execute("PRAGMA journal_mode=DELETE")
            part.rename(file)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot write {file}: {error}") from error
    finally:
        for rest in ("", "-wal", "-shm", "-journal"):
            part.with_name(part.name + rest).unlink(missing_ok=True)
