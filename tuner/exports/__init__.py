"""Export formats: a trial's launch command, written for the program that will run it.

Each format is a module that follows `Format`: it receives an `Exported` and returns the text of one
file. A module is imported when its format is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from tuner.exports.exported import Exported

_MODULES = {
    "shell": "shell_script",
    "json": "documents",
    "yaml": "yaml_document",
    "sglang-config": "sglang_config",
    "compose": "compose_file",
    "k8s": "kubernetes",
    "systemd": "systemd_unit",
}

FORMATS = tuple(_MODULES)
"""Formats by the name that `tuner export --format` takes."""


CONTAINER_FORMATS = ("compose", "k8s")
"""Those that start an image."""


class Format(Protocol):
    """An export format.

    Exports are exact: a reader that follows the rules of the format gets every word of the command
    and every value of its variables, character for character. Secrets are replaced by references. A
    comment says what the format cannot express, for example a variable to remove.
    """

    EXECUTABLE: bool
    """Whether a file of it is started by itself."""

    def write(self, exported: Exported) -> str:
        """Return the text of the file."""


def format_of(name: str) -> Format:
    """Return the format with a name of `FORMATS`."""
    return cast("Format", importlib.import_module(f"tuner.exports.{_MODULES[name]}"))
