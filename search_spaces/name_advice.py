"""Flags and variables of a study that nothing reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.flag_values import old_value, unknown_flag
from search_spaces.launch_commands import read_launch_text
from search_spaces.nccl.pairs import crossed_bounds, shadowed
from search_spaces.variables import unknown_variable, value_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from search_spaces.study import Study


def name_advice(study: Study) -> Iterator[str]:
    """Names that nothing reads, or only some versions of it."""
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
    yield from _production(study)
    fixed = {name: value for name, value in study.server.env.items() if value is not None}
    for loser, winner in shadowed(fixed):
        yield f"server.env.{loser}: NCCL does not look at it beside {winner}; leave one of them out"


def _production(study: Study) -> Iterator[str]:
    """Today's variables: it runs with them, though not as its author thinks."""
    if study.production is None:
        return
    env = read_launch_text(study.production.command, kind="shell").env
    for name, value in env.items():
        for problem in (value_problem(name, value), unknown_variable(name)):
            if problem is not None:
                yield f"production.command: {name}: {problem}"
    for _, _, message in crossed_bounds(env):
        yield f"production.command: {message}"


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
