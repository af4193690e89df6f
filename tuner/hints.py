"""Commands in messages can be copied: they name the database that this command line named.

Messages are written without it, and many are stored with a study, which may be moved: each gets it
where it is printed.
"""

from __future__ import annotations

import re
import shlex
from contextvars import ContextVar

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
