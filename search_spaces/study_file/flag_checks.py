"""What is wrong with a study's SGLang flags, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.flags.flag_values import flag_problem
from search_spaces.flags.flags import BELONGS_ELSEWHERE, canonical_flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from search_spaces.study_file.study import Server, SpaceSpec
    from search_spaces.study_file.values import FixedValue
    from search_spaces.study_file.yaml_nodes import Path


CHECKED_WITH_THE_SERVER = {"tp-size", "port"}
"""Numbers of `server.flags` that `study_checks` knows more of."""


def check_flags(
    server: Server | None, space: SpaceSpec | None, data: object
) -> Iterator[tuple[Path, str]]:
    """Values that SGLang's parser would refuse.

    Args:
        server: The section, if it could be read.
        space: Likewise.
        data: The file's values as they are written.
    """
    if server is not None:
        yield from _fixed(server.flags, ("server", "flags"), data)
    if space is not None:
        yield from _choices(space.flags, ("space", "flags"), data)
        for index, part in enumerate(space.speculation):
            yield from _choices(part.flags, ("space", "speculation", index, "flags"), data)


def _fixed(flags: Mapping[str, FixedValue], at: Path, data: object) -> Iterator[tuple[Path, str]]:
    written = _written(data, at)
    for name, value in flags.items():
        if name in BELONGS_ELSEWHERE or name in CHECKED_WITH_THE_SERVER:
            continue
        problem = flag_problem(name, value, written.get(name))
        if problem is not None:
            yield (*at, name), problem


def _choices(
    flags: Mapping[str, tuple[FixedValue, ...]], at: Path, data: object
) -> Iterator[tuple[Path, str]]:
    written = _written(data, at)
    for name, values in flags.items():
        if name in BELONGS_ELSEWHERE:
            continue
        asked = written.get(name)
        for index, value in enumerate(values):
            # Repeated choices are left out of `values`: only then are they numbered otherwise.
            same = isinstance(asked, list) and len(asked) == len(values)
            problem = flag_problem(name, value, asked[index] if same else None)  # type: ignore[index]
            if problem is not None:
                yield (*at, name, index), problem


def _written(data: object, at: Path) -> dict[str, object]:
    """The values below a path, by canonical names."""
    for part in at:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            return {}
    if not isinstance(data, dict):
        return {}
    return {canonical_flag(str(name)): value for name, value in data.items()}
