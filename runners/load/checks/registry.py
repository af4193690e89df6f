"""Registry of the checks of a window.

A check is a function that takes the `Evidence` of a window. It returns what it found as a phrase,
or `None`. The function's name is the check's code. `@invalidates` marks checks whose finding makes
the window invalid; `@warns` marks checks whose finding is a warning. To add a check, write the
function in one of the modules that `run.py` lists, and describe the code in `docs/validity.md`.
"""

from __future__ import annotations

from collections.abc import Callable

from runners.load.checks.evidence import Evidence

Check = Callable[[Evidence], str | None]

INVALIDATING: dict[str, Check] = {}
"""Checks whose finding makes a window invalid, by code."""

WARNING: dict[str, Check] = {}
"""Checks whose finding is a warning, by code."""


def invalidates(check: Check) -> Check:
    """Register a check whose finding makes a window invalid."""
    INVALIDATING[check.__name__] = check
    return check


def warns(check: Check) -> Check:
    """Register a check whose finding is a warning."""
    WARNING[check.__name__] = check
    return check
