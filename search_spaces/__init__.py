"""Describes tuning problems: study files, legal spaces, canonical configurations.

The bottom of the chain of packages: it imports none of the others and does no I/O but reading a
file. Names are loaded when they are first used, so that a configuration costs no pydantic.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from search_spaces.advice import warnings
    from search_spaces.baseline import baselines
    from search_spaces.catalog import shipped
    from search_spaces.conditions import broken_conditions
    from search_spaces.configuration import Configuration, Setting, Speculation, Value
    from search_spaces.legality import canonical, violations
    from search_spaces.parameters import Parameter
    from search_spaces.problems import Problem, StudyFileError
    from search_spaces.space import NotInSpaceError, Space, SpaceTooLargeError
    from search_spaces.study import Study, load_study, parse_study
    from search_spaces.violation import Violation
    from search_spaces.workload import OperatingPoint, Workload

__all__ = [
    "Configuration",
    "NotInSpaceError",
    "OperatingPoint",
    "Parameter",
    "Problem",
    "Setting",
    "Space",
    "SpaceTooLargeError",
    "Speculation",
    "Study",
    "StudyFileError",
    "Value",
    "Violation",
    "Workload",
    "baselines",
    "broken_conditions",
    "canonical",
    "load_study",
    "parse_study",
    "shipped",
    "violations",
    "warnings",
]

_HOMES = {
    "advice": ("warnings",),
    "baseline": ("baselines",),
    "catalog": ("shipped",),
    "conditions": ("broken_conditions",),
    "configuration": ("Configuration", "Setting", "Speculation", "Value"),
    "legality": ("canonical", "violations"),
    "parameters": ("Parameter",),
    "problems": ("Problem", "StudyFileError"),
    "space": ("NotInSpaceError", "Space", "SpaceTooLargeError"),
    "study": ("Study", "load_study", "parse_study"),
    "violation": ("Violation",),
    "workload": ("OperatingPoint", "Workload"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
