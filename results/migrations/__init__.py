"""Upgrade a database's `tuner_` tables to the current schema.

Alembic stores the tuner's version in `tuner_alembic_version`; `alembic_version` belongs to Optuna,
whose tables are never changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, text

from results.database import shown_address
from results.errors import StoreMissing, StoreOutdated, StoreVersionError

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection, Engine

VERSION_TABLE: Final = "tuner_alembic_version"

HEAD: Final = "0004"
"""The newest revision; stated here so that opening a current database does not load Alembic."""


_LOCK: Final = 0x7475_6E65_7200_0001
"""Number of the lock that PostgreSQL knows an upgrade by; nobody else's (\"tuner\", 1)."""


def configuration() -> Config:
    """Alembic's configuration, without an ini file."""
    from alembic.config import Config  # noqa: PLC0415 - heavy, and rarely needed

    config = Config()
    # Alembic expands %, which may occur in a path.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("file_template", "v%%(rev)s_%%(slug)s")
    config.set_main_option("path_separator", "os")
    return config


def current_version(connection: Connection) -> str | None:
    """Revision of the database; `None` without tuner tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant
    return None if found is None else str(found)


def require_head(engine: Engine) -> None:
    """Check that a database can be read without an upgrade.

    Raises:
        StoreMissing: The database has no tables of the tuner.
        StoreOutdated: The schema is older than `HEAD`.
        StoreVersionError: The schema is newer.
    """
    shown = shown_address(engine.url)
    with engine.connect() as connection:
        version = current_version(connection)
    if version is None:
        raise StoreMissing(f"the database {shown} has no tables of tuner")
    if version > HEAD:
        raise _newer(engine, version)
    if version < HEAD:
        raise StoreOutdated(
            f"the database {shown} has schema {version}, and this version needs {HEAD}; upgrade it "
            "by running `tuner show` once as a user who may write the file"
        )


def _newer(engine: Engine, version: str) -> StoreVersionError:
    return StoreVersionError(
        f"the database {shown_address(engine.url)} was written by a newer tuner "
        f"(schema {version}; this one knows up to {HEAD}); "
        "update sglang-tuner, or use another --storage"
    )


def upgrade(engine: Engine) -> None:
    """Upgrade to `HEAD` in one transaction, or leave the database unchanged.

    `engine` must open writing transactions (`results.database.WRITE_OPTION`), so that a second
    tuner that opens a new database waits and then finds the work done.

    Raises:
        StoreVersionError: The revision of the database is unknown.
    """
    with engine.connect() as connection:
        if current_version(connection) == HEAD:
            return
    from alembic import command  # noqa: PLC0415 - heavy, and rarely needed
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = configuration()
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # Held until the transaction ends. SQLite's writers wait for each other without a lock.
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        version = current_version(connection)
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if version is not None and version not in known:
            raise _newer(engine, version)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
