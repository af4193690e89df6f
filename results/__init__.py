"""What was planned, launched and measured, remembered.

Records load with the package; whatever needs SQLAlchemy or Optuna loads when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from results.errors import (
    MirrorConflict,
    StoreError,
    StoreMissing,
    StoreOutdated,
    StoreVersionError,
    StudyBusy,
    StudyExists,
    StudyNotFound,
)
from results.records import (
    Failure,
    Fault,
    Launch,
    LaunchIntent,
    LaunchState,
    Measurement,
    ProcessIdentity,
    Purpose,
    RequestSample,
    Resolved,
    Trial,
    TrialState,
)
from results.studies import NewStudy, Stopped, StoredMeasurement, StoredStudy, Unfinished

if TYPE_CHECKING:
    from results.optuna_mirror import MirrorTrial, OptunaMirror
    from results.optuna_parameters import MirrorParameter
    from results.ownership import Owner
    from results.store import Store

__all__ = [
    "Failure",
    "Fault",
    "Launch",
    "LaunchIntent",
    "LaunchState",
    "Measurement",
    "MirrorConflict",
    "MirrorParameter",
    "MirrorTrial",
    "NewStudy",
    "OptunaMirror",
    "Owner",
    "ProcessIdentity",
    "Purpose",
    "RequestSample",
    "Resolved",
    "Stopped",
    "Store",
    "StoreError",
    "StoreMissing",
    "StoreOutdated",
    "StoreVersionError",
    "StoredMeasurement",
    "StoredStudy",
    "StudyBusy",
    "StudyExists",
    "StudyNotFound",
    "Trial",
    "TrialState",
    "Unfinished",
]

_LAZY = {
    "MirrorParameter": "results.optuna_parameters",
    "MirrorTrial": "results.optuna_mirror",
    "OptunaMirror": "results.optuna_mirror",
    "Owner": "results.ownership",
    "Store": "results.store",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
