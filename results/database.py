"""Addresses of databases, engines with the required durability, and transactions."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shlex
import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import URL, Integer, bindparam, create_engine, event, func, insert, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import StaticPool

from results import tables
from results.errors import StoreError, StoreMissing, StudyNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine, Table


BUSY_TIMEOUT_S: Final = 60.0
"""How long a write waits for another one (optuna-dashboard, a second tuner on another study)."""

WRITE_OPTION: Final = "tuner_write"
"""Execution option of connections that will write."""


def resolve_url(address: str) -> URL:
    """Complete an address: an absolute SQLite path, a PostgreSQL driver.

    Raises:
        StoreError: The address is not valid, or names an unsupported database.
    """
    try:
        url = make_url(address)
    except ArgumentError as error:
        raise StoreError(
            f"{_without_password(address)!r} is not a database address; use sqlite:///FILE or "
            "postgresql://USER:PASSWORD@HOST/DATABASE"
        ) from error
    backend = url.get_backend_name()
    if url.drivername in {"sqlite", "sqlite+pysqlite"}:
        if url.host:
            raise StoreError(
                f"{_without_password(address)!r} names no file; use three slashes: sqlite:///{url.host}"
            )
        if in_memory(url) or str(url.database).startswith("file:"):
            return url
        if "?" in address:
            raise StoreError(
                f"{address!r}: `?` ends the file name; write %3F for a question mark in the name"
            )
        return url.set(database=str(Path(str(url.database)).expanduser().resolve()))
    if backend in {"postgresql", "postgres"}:
        if url.drivername in {"postgresql", "postgres"}:
            return url.set(drivername="postgresql+psycopg")
        return url
    raise StoreError(
        f"{url.drivername} databases are not supported; use sqlite:/// or postgresql://"
    )


def shown_address(url: URL | str) -> str:
    """Address without its password, for output and storage."""
    url = make_url(url)
    hidden = {name: "***" for name in url.query if "password" in name.lower()}
    return url.update_query_dict(hidden).render_as_string()


def address_without_password(address: str) -> str:
    """Address without its password that is usable with a password from elsewhere.

    Raises:
        StoreError: The address is not valid.
    """
    try:
        url = make_url(address)
    except ArgumentError as error:
        raise StoreError(f"{_without_password(address)!r} is not a database address") from error
    query = {name: value for name, value in url.query.items() if "password" not in name.lower()}
    if url.password is None and len(query) == len(url.query):
        return address  # keep the spelling
    bare = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, query)
    return bare.render_as_string()


def address_of(file: Path) -> str:
    """Address of an SQLite file; all characters in its name are allowed."""
    return URL.create("sqlite", database=str(file)).render_as_string()


def _without_password(text: str) -> str:
    """Remove the password from a text that is not a valid address."""
    return re.sub(r":[^/:@]*@", ":***@", re.sub(r"(password=)[^&]*", r"\1***", text))


def in_memory(url: URL) -> bool:
    """Whether the database exists in this process only."""
    return url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}


def open_engine(url: URL, *, create: bool) -> Engine:
    """Open an engine for a complete address.

    Raises:
        StoreMissing: The SQLite file does not exist, and `create` is false.
        StoreError: The folder does not exist, the driver is missing, or the file is not a database.
    """
    if url.get_backend_name() != "sqlite":
        return _postgres(url)
    if in_memory(url):
        engine = _engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
        _prepare_sqlite(engine)
        return engine
    path = Path(str(url.database))
    if not str(path).startswith("file:"):
        if not path.parent.is_dir():
            raise StoreError(f"cannot open {path}: its folder does not exist; create it first")
        if not create and not path.exists():
            raise StoreMissing(f"there is no database at {path}")
    engine = _engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    _prepare_sqlite(engine)
    _use_wal(engine, path)
    return engine


def open_for_reading(url: URL) -> Engine:
    """Open an engine that writes neither into the database nor beside it.

    Raises:
        StoreMissing: The file does not exist, or the address is in memory.
        StoreError: The database cannot be read, the driver is missing, or the file is not a
            database.
    """
    if url.get_backend_name() != "sqlite":
        return _postgres(url, execution_options={"postgresql_readonly": True})
    path = Path(str(url.database))
    if in_memory(url) or not path.exists():
        raise StoreMissing(f"there is no database at {path}")
    engine = _engine(url, creator=_reading_connections(path))
    _prepare_sqlite(engine)
    return engine


def _reading_connections(path: Path) -> Callable[[], sqlite3.Connection]:
    """Return a function that connects to a file which must not be written.

    SQLite reads a WAL file through two files beside it. If these neither exist nor can be created,
    nobody writes the file, and it can be read directly (`immutable`).
    """

    def connect(how: str) -> sqlite3.Connection:
        return sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, timeout=BUSY_TIMEOUT_S)

    for how in ("mode=ro", "mode=ro&immutable=1"):
        try:
            with contextlib.closing(connect(how)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            problem: sqlite3.Error = error
            unwritten = path.with_name(f"{path.name}-wal")
            if _size_of(unwritten):
                raise StoreError(
                    f"cannot read {path} ({error}): its last records are in {unwritten.name}, and "
                    "reading them needs write permission for the folder; copy both files to a "
                    "folder of yours and use the copy as --storage"
                ) from error
        except sqlite3.DatabaseError as error:
            raise StoreError(_unusable(path, error)) from error
        else:
            return functools.partial(connect, how)
    raise StoreError(f"cannot read the database {path}: {problem}") from problem


def _unusable(path: Path, error: sqlite3.Error) -> str:
    if "not a database" in str(error):
        return f"{path} is not an SQLite database ({error})"
    return (
        f"{path} cannot be used as an SQLite database ({error}): if it was one, restore a backup "
        f"(`tuner db backup` makes them), or save what is left: `sqlite3 {shlex.quote(str(path))} "
        "'.recover' | sqlite3 saved.db`"
    )


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _engine(url: URL, **options: Any) -> Engine:  # noqa: ANN401 - SQLAlchemy's own
    return create_engine(
        url,
        json_serializer=_to_json,
        json_deserializer=_from_json,
        **options,
    )


def _to_json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # A server's answer may contain what orjson refuses (broken Unicode, huge integers), which
        # must not lose a finished trial.
        return json.dumps(value)


def _from_json(text: str) -> object:
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text)


def _postgres(url: URL, **options: Any) -> Engine:  # noqa: ANN401 - SQLAlchemy's own
    try:
        return _engine(url, pool_pre_ping=True, **options)
    except ImportError as error:
        raise StoreError(
            f"the driver for {url.drivername} is not installed; "
            "install the extra: pip install 'sglang-tuner[postgres]'"
        ) from error


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _: object) -> None:
        # `_begin` begins transactions, because the driver would begin them late.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        # FULL, because in WAL mode NORMAL may lose the last commits at power loss. One fsync per
        # record is cheap compared with the minutes of a launch.
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A writer takes the lock before it reads. A deferred transaction that begins to write fails
        # at once, despite the busy timeout, if another one wrote after its first read.
        write = connection.get_execution_options().get(WRITE_OPTION, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _use_wal(engine: Engine, path: Path) -> None:
    """Set WAL, a property of the file, so Optuna's connections use it too."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection = engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA journal_mode=WAL")
            finally:
                connection.close()
        except sqlite3.OperationalError as error:
            # The change of mode needs exclusive access and ignores the busy timeout.
            if "locked" in str(error) and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise StoreError(f"cannot open the database {path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(_unusable(path, error)) from error
        else:
            return


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
