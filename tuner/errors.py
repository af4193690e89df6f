"""Errors that end a command, exit codes, and commands in messages that can be copied."""

from __future__ import annotations

import enum
import re
import shlex
from contextvars import ContextVar


class Exit(enum.IntEnum):
    """Exit codes (`docs/contract.md`)."""

    DONE = 0
    USAGE = 2
    INFEASIBLE = 3
    FAULT = 4
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends a command with a message and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.code = code


_GIVEN: ContextVar[str | None] = ContextVar("_GIVEN", default=None)

_COMMAND = re.compile(r"`(tuner (?:(?:sweep|resume|show|explain|export) [^`\n]*|db [a-z][^`\n]*))`")
"""A command on a database with its options. `tuner show` without any is a name, not a command."""


def remember(storage: str | None) -> None:
    """Remember the value of `--storage` for `copyable`.

    Args:
        storage: The address. `None` if the next command finds the address without the option.
    """
    _GIVEN.set(storage)


def copyable(text: str) -> str:
    """Add `--storage` to each command in `text` that needs it, without a password."""
    given = _GIVEN.get()
    if given is None or _COMMAND.search(text) is None:
        return text
    from results.database import address_without_password  # noqa: PLC0415 - imports SQLAlchemy
    from results.errors import StoreError  # noqa: PLC0415

    try:
        option = f"--storage {shlex.quote(address_without_password(given))}"
    except StoreError:
        return text  # the message says that this is no address

    def completed(found: re.Match[str]) -> str:
        command = found[1]
        return found[0] if "--storage" in command else f"`{command} {option}`"

    return _COMMAND.sub(completed, text)
