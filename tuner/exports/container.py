"""Parts that all container formats share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.exports.exported import ALL_ADDRESSES, GPU_CHOICES, Secret
from tuner.exports.remarks import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuner.exports.exported import Exported, Word


def words(exported: Exported, written: Callable[[Word], str]) -> list[list[str]]:
    """Flags as words of the file, listening on all addresses.

    Args:
        exported: The export.
        written: Formats a word for the file: secrets by reference, no expansion of other words.
    """
    return [[written(word) for word in line] for line in exported.flag_lines(host=ALL_ADDRESSES)]


def notes(exported: Exported) -> list[str]:
    """Differences of the container from the measured command."""
    version = exported.facts["sglang_version"]
    told = [f"The image must contain the measured SGLang version, {version}."] if version else []
    if exported.host != ALL_ADDRESSES:
        told.append(
            f"The server listens on all addresses of the container; in the study on "
            f"{exported.host}."
        )
    if exported.command.prefix:
        words_before = " ".join(exported.command.prefix)
        told.append(
            f"Measured with the prefix `{words_before}`, which is not exported: "
            "pin the container to the same CPUs."
        )
    dropped = [name for name, _ in exported.env if name in GPU_CHOICES]
    if dropped:
        told.append(
            f"{', '.join(dropped)}: not exported, because a container numbers its own GPUs."
        )
    files = [
        value
        for _, value in exported.flags
        if isinstance(value, str) and value.startswith("/") and value not in exported.local_paths
    ]
    if files:
        told.append(f"These files are needed in the container, but not mounted: {', '.join(files)}")
    return [one_line(note) for note in (*told, *exported.notes)]


def secret_variables(exported: Exported) -> list[str]:
    """Secrets of flags, which need a variable each."""
    found = [value.name for _, value in exported.flags if isinstance(value, Secret)]
    return list(dict.fromkeys(found))
