"""The SGLang versions that this code knows from their sources."""

from __future__ import annotations

import re

READ_VERSIONS = ("0.5.9", "0.5.17", "0.5.23")
"""Those whose field names, meanings and messages were read, oldest first."""


def version_note(version: str) -> str | None:
    """What is not known of a server of this version; `None` from the oldest to the newest read."""
    numbers = _numbers(version)
    if numbers is not None and _OLDEST <= numbers <= _NEWEST:
        return None
    return (
        f"SGLang {version}: names and meanings of its figures were read in "
        f"{', '.join(READ_VERSIONS)}; in other versions they may differ"
    )


def _numbers(version: str) -> tuple[int, ...] | None:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return tuple(int(part) for part in found.groups()) if found else None


_OLDEST = _numbers(READ_VERSIONS[0]) or ()
_NEWEST = _numbers(READ_VERSIONS[-1]) or ()
