"""Export as a POSIX shell script that replaces itself with the server."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tuner.exports.exported import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuner.exports.exported import Exported, Word

EXECUTABLE = True


def write(exported: Exported) -> str:
    """See `tuner.exports.Format`. The server receives signals sent to the script."""
    first = ["exec", *(["env"] if exported.env or exported.unset else [])]
    first += (f"-u {name}" for name in exported.unset)
    steps = [f"{name}={quoted(value)}" for name, value in exported.env]
    steps.append(" ".join(map(quoted, exported.start)))
    steps += (" ".join(map(quoted, words)) for words in exported.flag_lines())
    command = " \\\n  ".join([" ".join(first), *steps])
    return "\n".join(["#!/bin/sh", *_comments(exported), command, ""])


def quoted(word: Word) -> str:
    """Quote a word for the shell. A secret becomes its variable, which must be set."""
    if isinstance(word, Secret):
        return f'"${{{word.name}:?set it}}"'
    return shlex.quote(word)


def _comments(exported: Exported) -> Iterable[str]:
    yield from (f"# {line}" for line in (*exported.remarks, *exported.changes))
    yield from (f"# NOTE: {note}" for note in exported.own_notes)
    if exported.secrets:
        yield f"# Set first: {', '.join(exported.secrets)}"
