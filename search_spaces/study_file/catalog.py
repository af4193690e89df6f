"""The studies that come with the tuner."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def shipped() -> tuple[tuple[str, str], ...]:
    """Names of the shipped studies, each with one line that describes it (its first comment)."""
    folder = resources.files("search_spaces") / "studies"
    out = []
    for file in folder.iterdir():
        if file.name.endswith(".yaml"):
            first = file.read_text(encoding="utf-8").splitlines()[0]
            out.append((file.name.removesuffix(".yaml"), first.removeprefix("#").strip()))
    return tuple(sorted(out))


def shipped_text(name: str) -> str:
    """The file of a shipped study.

    Raises:
        KeyError: There is none of that name.
    """
    if name not in dict(shipped()):
        raise KeyError(name)
    file = resources.files("search_spaces") / "studies" / f"{name}.yaml"
    return file.read_text(encoding="utf-8")
