"""Errors that end a command, and the exit codes that scripts rely on."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """Exit codes (`docs/contract.md`)."""

    DONE = 0
    USAGE = 2
    INFEASIBLE = 3
    FAULT = 4
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends a command with a message for its user and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.code = code
