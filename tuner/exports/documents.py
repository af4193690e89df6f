"""Export as JSON, with the keys of `docs/contract.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runners.sglang.command import shell
from tuner.exports.exported import Secret
from tuner.reports.json_text import dump

if TYPE_CHECKING:
    from tuner.exports.exported import Exported

EXECUTABLE = False


def write(exported: Exported) -> str:
    """See `tuner.exports.Format`."""
    return dump(document(exported))


def document(exported: Exported) -> dict[str, Any]:
    """Content of the JSON and YAML exports."""
    command, state = exported.command, exported.facts.get("state")
    notes = list(exported.own_notes)
    if state not in {"complete", None}:
        notes.insert(0, f"Do not use this in production: the trial is {state}.")
    return {
        "simulated": exported.simulated,
        "prefix": list(command.prefix),
        "argv": list(command.argv),
        "env": dict(command.env),
        "unset": list(command.unset),
        "command": shell(command),
        **exported.facts,
        "notes": notes,
        "secrets": _secrets(exported),
    }


def _secrets(exported: Exported) -> list[dict[str, str]]:
    """Variable that holds each secret, and the flag or variable that uses it."""
    places = [(f"--{name}", value) for name, value in exported.flags]
    places += list(exported.env)
    return [
        {"name": value.name, "for": place} for place, value in places if isinstance(value, Secret)
    ]
