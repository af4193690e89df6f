"""Run all checks of a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runners.load.checks import (
    acceptance,
    client,
    lock_step,
    outputs,
    pace,
    requests,
    steadiness,
    tokens,
)
from runners.load.checks.registry import INVALIDATING, WARNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.checks.evidence import Evidence
    from runners.load.checks.registry import Check

MODULES = (requests, tokens, client, lock_step, pace, steadiness, acceptance, outputs)
"""All modules with checks; importing them registers the checks."""


def reasons_against(evidence: Evidence, watched: Sequence[str] = ()) -> tuple[str, ...]:
    """Return every reason against a window as `"code: phrase"`; empty for a valid window.

    Args:
        evidence: The window.
        watched: Findings of the watches, in the same format.
    """
    return (*watched, *_findings(INVALIDATING, evidence))


def warnings_about(evidence: Evidence) -> tuple[str, ...]:
    """Return every warning as `"code: phrase"`; empty if there is none."""
    return _findings(WARNING, evidence)


def _findings(checks: dict[str, Check], evidence: Evidence) -> tuple[str, ...]:
    findings = ((code, check(evidence)) for code, check in checks.items())
    return tuple(f"{code}: {finding}" for code, finding in findings if finding is not None)
