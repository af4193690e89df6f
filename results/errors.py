"""Errors of the database. Each message says what to do next."""

from __future__ import annotations


class StoreError(Exception):
    """The database cannot be opened, read or written, or a request is not valid."""


class StoreMissing(StoreError):  # noqa: N818 - names a state
    """The database does not exist and must not be created."""


class StoreVersionError(StoreError):
    """The database was written by a newer tuner."""


class StoreOutdated(StoreError):  # noqa: N818 - names a state
    """The database has an older schema and was opened read-only."""


class StudyExists(StoreError):  # noqa: N818 - names a state
    """A study with this name exists."""


class StudyNotFound(StoreError):  # noqa: N818 - names a state
    """There is no study with this name or id."""


class StudyBusy(StoreError):  # noqa: N818 - names a state
    """Another tuner is running this study.

    Attributes:
        pid: Process id of that tuner.
        host: Host of that tuner.
    """

    def __init__(self, message: str, *, pid: int, host: str) -> None:
        super().__init__(message)
        self.pid = pid
        self.host = host


class MirrorConflict(StoreError):  # noqa: N818 - names a state
    """Optuna's tables have a different study with this name."""
