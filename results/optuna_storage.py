"""Optuna's storage in the tuner's database, without Optuna's log lines."""

from __future__ import annotations

import random
import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from results.database import BUSY_TIMEOUT_S, resolve_url
from results.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optuna.storages import RDBStorage

_CREATIONS: Final = 6
_CREATION_PAUSE_S: Final = 0.3


def rdb_storage(address: str) -> RDBStorage:
    """Open Optuna's tables, and create them if necessary.

    Raises:
        SQLAlchemyError: The tables cannot be used; `optuna_at_work` translates this error.
    """
    from optuna.storages import RDBStorage  # noqa: PLC0415

    url = resolve_url(address)
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": BUSY_TIMEOUT_S}
    # Optuna formats the address with {SCHEMA_VERSION}, so other braces are doubled.
    text = url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    for attempt in range(_CREATIONS):
        try:
            return RDBStorage(text, engine_kwargs=options)
        except SQLAlchemyError:
            # Optuna creates its tables without a lock, so one of two simultaneous first sweeps
            # may find only some of them (5.0.0).
            if attempt == _CREATIONS - 1:
                raise
            time.sleep(_CREATION_PAUSE_S * (1 + random.random()))  # noqa: S311 - to part the two
    raise AssertionError("unreachable")


def close_storage(storage: RDBStorage) -> None:
    """Close the database."""
    storage.remove_session()
    storage.engine.dispose()


@contextmanager
def optuna_at_work() -> Iterator[None]:
    """Silence Optuna's log lines and warnings in the block, and translate its errors.

    Raises:
        StoreError: Optuna's storage failed, or has a version that this Optuna does not support.
    """
    import optuna  # noqa: PLC0415

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError, RuntimeError) as error:
        raise StoreError(f"Optuna's tables cannot be used: {_cause(error)}") from error
    finally:
        optuna.logging.set_verbosity(verbosity)


def _cause(error: BaseException) -> str:
    """The database's own message, without the generic advice that Optuna adds."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    said = next((c.orig for c in causes if isinstance(c, DBAPIError) and c.orig), None)
    return str(said or error)
