"""Flags and variables of a study that nothing reads, and secrets that stand in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.flag_values import old_value, unknown_flag
from search_spaces.nccl import shadowed, unknown_variable
from search_spaces.secrets import is_reference, is_secret, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from search_spaces.study import Study


def name_advice(study: Study) -> Iterator[str]:
    """Names that nothing reads, or only some versions of it; secrets, without showing them."""
    flags: list[tuple[str, Mapping[str, object]]] = [
        ("server.flags", study.server.flags),
        ("space.flags", study.space.flags),
    ]
    for index, part in enumerate(study.space.speculation):
        flags.append((f"space.speculation[{index}].flags", part.flags))
    env: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("server.env", study.server.env),
        ("space.env", study.space.env),
    )
    for place, values in flags:
        yield from _each(place, values, unknown_flag)
    for place, values in env:
        yield from _each(place, values, unknown_variable)
    for place, values in flags:
        for name, value in values.items():
            yield from _old_values(place, name, value)
    for place, values in (*flags, *env):
        yield from _secrets(place, values)
    fixed = {name: value for name, value in study.server.env.items() if value is not None}
    for loser, winner in shadowed(fixed):
        yield f"server.env.{loser}: NCCL does not look at it beside {winner}; leave one of them out"


def _each(
    place: str, names: Iterable[str], problem_of: Callable[[str], str | None]
) -> Iterator[str]:
    for name in names:
        if (problem := problem_of(name)) is not None:
            yield f"{place}.{name}: {problem}"


def _old_values(place: str, name: str, value: object) -> Iterator[str]:
    for each in value if isinstance(value, tuple) else (value,):
        if (problem := old_value(name, each)) is not None:
            yield f"{place}.{name}: {problem}"


def _secrets(place: str, values: Mapping[str, object]) -> Iterator[str]:
    for name, value in values.items():
        given = value if isinstance(value, tuple) else (value,)
        if is_secret(name) and any(v is not None and not is_reference(v) for v in given):
            yield (
                f"{place}.{name}: Is a secret, and the study is kept in the database: write "
                f"`{name}: {reference(name)}`, which the exported command reads from its "
                "environment"
            )
