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
    """Ends a command with a message for its user and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.code = code


_GIVEN: ContextVar[str | None] = ContextVar("_GIVEN", default=None)

_COMMAND = re.compile(r"`(tuner (?:(?:sweep|resume|show|explain|export) [^`\n]*|db [a-z][^`\n]*))`")
"""A command on a database with its options. `tuner show` without any is a name, not a command."""


def remember(storage: str | None) -> None:
    """What `--storage` was given on the command line.

    Args:
        storage: The address; `None` where it is that of the environment or the default, which the
            next command takes by itself.
    """
    _GIVEN.set(storage)


def copyable(text: str) -> str:
    """`text`, with `--storage` in each command that needs it; a password is left out."""
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
