"""Export formats: a trial's server, written for whatever will run it.

Each format is a module that follows `Format`: it gets one `Exported` value and returns the text of
one file. A module is imported when its format is asked for.
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
"""Every format, by the name that `tuner export --format` takes."""


CONTAINER_FORMATS = ("compose", "k8s")
"""Those that start an image."""


class Format(Protocol):
    """One format.

    What is exported is exact: whoever reads the text by its own rules gets the words of the
    command and the values of its variables, character for character. No secret is in it: its
    place holds a reference in the format's own manner. What the format cannot say (a variable to
    be removed, say) stands in a comment.
    """

    EXECUTABLE: bool
    """Whether a file of it is started by itself."""

    def write(self, exported: Exported) -> str:
        """The text of the file."""


def format_of(name: str) -> Format:
    """The format of that name, one of `FORMATS`."""
    return cast("Format", importlib.import_module(f"tuner.exports.{_MODULES[name]}"))
