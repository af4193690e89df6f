"""What can go wrong between the tuner and its database; each message says what to do next."""

from __future__ import annotations


class StoreError(Exception):
    """The database could not be opened, read or written, or was asked for the impossible."""


class StoreMissing(StoreError):  # noqa: N818 - names the state, as the CLI tells it
    """There is no database at that address, and it was not to be created."""


class StoreVersionError(StoreError):
    """The database was written by a newer tuner."""


class StoreOutdated(StoreError):  # noqa: N818 - names the state, as the CLI tells it
    """The database is of an older schema, and was to be read only."""


class StudyExists(StoreError):  # noqa: N818 - names the state, as the CLI tells it
    """A study of that name is stored already."""


class StudyNotFound(StoreError):  # noqa: N818 - names the state, as the CLI tells it
    """No study of that name, or number, is stored."""


class StudyBusy(StoreError):  # noqa: N818 - names the state, as the CLI tells it
    """Another living tuner works on the study.

    Attributes:
        pid: Its process.
        host: The machine on which it runs.
    """

    def __init__(self, message: str, *, pid: int, host: str) -> None:
        super().__init__(message)
        self.pid = pid
        self.host = host


class MirrorConflict(StoreError):  # noqa: N818 - names the state, as the CLI tells it
    """Optuna's tables hold something under the study's name that is not this study."""
