"""The SGLang versions that this code knows from their sources."""

from __future__ import annotations

import re

READ_VERSIONS = ("0.5.9", "0.5.17", "0.5.23")
"""Those whose field names, meanings and messages were read, oldest first."""


def version_note(version: str) -> str | None:
    """What is not known of a server of this version; `None` from the oldest to the newest read."""
    if is_between(version, READ_VERSIONS[0], READ_VERSIONS[-1]):
        return None
    return (
        f"SGLang {version}: names and meanings of its figures were read in "
        f"{', '.join(READ_VERSIONS)}; in other versions they may differ"
    )


def is_between(version: str, oldest: str, newest: str) -> bool:
    """Whether a version is one of these or between them; one that is not understood is not."""
    numbers = [_numbers(one) for one in (oldest, version, newest)]
    known = [one for one in numbers if one is not None]
    return len(known) == len(numbers) and known == sorted(known)


def _numbers(version: str) -> tuple[int, ...] | None:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return tuple(int(part) for part in found.groups()) if found else None
