"""SGLang version of a study, and today's flags under the names of that version."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runners.process.environment import PYTHON_VARIABLE
from search_spaces.flags.flag_values import flag_problem
from search_spaces.flags.flags import canonical_flag
from search_spaces.flags.options import REPLACED, VERSIONS, options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.flags.options import Version
    from search_spaces.launch_commands import LaunchText
    from search_spaces.study_file.values import FixedValue

_VERSION = re.compile(r"(?<![\d.])v?(\d+)\.(\d+)\.(\d+)")
_SUCCESSOR = re.compile(r"`--([\w-]+)(?: ([\w-]+))?`")
_ASK = "import importlib.metadata as m; print(m.version('sglang'))"
_PATIENCE_S = 30


@dataclass(frozen=True, slots=True)
class Renamed:
    """A launch command with the flag names of one version.

    Attributes:
        launch: The command.
        names: Today's flag names by new names.
        version: The version.
    """

    launch: LaunchText
    names: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


def version_that_runs(launch: LaunchText | None, *, runner: str, here: bool) -> Version | None:
    """SGLang version of a study's launches: the nearest known version that is not newer.

    Args:
        launch: Today's command; `None` without a command.
        runner: Runner of the study. The simulated server has the newest version.
        here: Whether an interpreter of this machine starts the server.
    """
    if runner == "simulated":
        return "0.5.23"
    container = launch.container if launch is not None else None
    if container is not None:
        return version_of_image(container.image)
    if not here:
        return None
    python = launch.python if launch is not None else None
    return _nearest(_installed(python if python is not None and "/" in python else None))


def version_of_image(image: str) -> Version | None:
    """SGLang version of an image tag: the nearest known version that is not newer."""
    return _nearest(image.rsplit(":", 1)[-1]) if "sglang" in image else None


def with_successors(launch: LaunchText, version: Version | None) -> Renamed:
    """The command with flags renamed for a version."""
    renamed = Renamed(launch)
    for name in launch.flags if version is not None else ():
        renamed = _with_successor(renamed, name, version)
    return renamed


def _with_successor(renamed: Renamed, name: str, version: Version | None) -> Renamed:
    launch = renamed.launch
    found = _SUCCESSOR.fullmatch(REPLACED.get(name, ""))
    known = options(version) if version is not None else {}
    if found is None or name in known or found[1] not in known or found[1] in launch.flags:
        return renamed
    new, choice = found[1], found[2]
    value: FixedValue = launch.flags[name] if choice is None else choice
    if flag_problem(new, value) is not None or (choice and launch.flags[name] is not True):
        return renamed
    spelled = re.escape(name).replace(r"\-", "[-_]")
    words = f"--{new}" if choice is None else f"--{new} {choice}"
    text, count = re.subn(rf"(?<!\S)--{spelled}(?=[\s=]|$)", words, launch.text)
    if not count:
        return renamed
    flags = {new if n == name else n: value if n == name else v for n, v in launch.flags.items()}
    # The rename settles notes on the old name.
    notes = [note for note in launch.notes if not _is_of(note, name)]
    notes.append(f"`--{name}` is `{words}` in SGLang {version}, and is written so")
    return Renamed(
        replace(launch, text=text, flags=flags, notes=tuple(notes)),
        {**renamed.names, new: name},
        str(version),
    )


def _is_of(note: str, name: str) -> bool:
    found = re.match(r"`--?([\w.-]+)` is a flag of", note)
    return found is not None and canonical_flag(found[1]) == name


def _nearest(text: str) -> Version | None:
    found = _VERSION.search(text)
    if found is None:
        return None
    own = tuple(map(int, found.groups()))
    known = [v for v in VERSIONS if tuple(map(int, v.split("."))) <= own]
    return known[-1] if known else VERSIONS[0]  # type: ignore[return-value]


def _installed(python: str | None) -> str:
    """SGLang's version for an interpreter of this machine; empty where it has none."""
    python = python or os.environ.get(PYTHON_VARIABLE)
    if not python:
        try:
            return importlib.metadata.version("sglang")
        except importlib.metadata.PackageNotFoundError:
            return ""
    try:
        return subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
