"""Conditions that name what no configuration of their study has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.algorithms import canonical_algorithm
from search_spaces.flags.flags import BELONGS_ELSEWHERE
from search_spaces.flags.speculation_flags import ALGORITHM, NUMBER_FLAGS
from search_spaces.space.conditions import among, shown, spelled
from search_spaces.suggestions import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from search_spaces.study_file.study import Pattern, Server, SpaceSpec
    from search_spaces.study_file.values import FixedValue
    from search_spaces.study_file.yaml_nodes import Path

    Found = tuple[Path, str]


def check_conditions(server: Server, space: SpaceSpec) -> Iterator[Found]:
    """Algorithms, flags, variables and values that no configuration of the study has."""
    for index, condition in enumerate(space.conditions):
        at: Path = ("space", "conditions", index)
        if not condition.then.model_fields_set:
            yield (*at, "then"), "Asks for nothing; write what must hold, such as `{topk: 1}`"
        for key, pattern in (("when", condition.when), ("then", condition.then)):
            yield from _pattern(pattern, (*at, key), server, space)


def _pattern(pattern: Pattern, at: Path, server: Server, space: SpaceSpec) -> Iterator[Found]:
    algorithms = {part.canonical_algorithm: part.algorithm for part in space.speculation}
    for name in pattern.algorithm or ():
        if canonical_algorithm(name) not in algorithms:
            known = ", ".join(algorithms.values())
            yield (
                (*at, "algorithm"),
                f"{name} is not among the study's sub-spaces; take from: {known}",
            )
    choices: dict[str, tuple[FixedValue, ...]] = {**space.flags}
    for part in space.speculation:
        for name, values in part.flags.items():
            # Not given in the other sub-spaces.
            choices[name] = (*choices.get(name, ()), *values, None)
    for name in choices:
        if name.startswith("speculative-"):
            choices[name] += (None,)  # SGLang takes no notice of it without an algorithm
    for name, wanted in pattern.flags.items():
        if name in BELONGS_ELSEWHERE and name not in server.flags:
            yield (*at, "flags", name), _key_of(name)
        else:
            yield from _values((*at, "flags", name), wanted, server.flags, choices)
    varied = {
        name: (*(spelled(name, value) for value in values), None)
        for name, values in space.env.items()
    }
    fixed = {name: spelled(name, value) for name, value in server.env.items()}
    for name, wanted in pattern.env.items():
        canonical = [spelled(name, value) for value in wanted]
        yield from _values((*at, "env", name), canonical, fixed, varied)


def _key_of(flag: str) -> str:
    key = "algorithm" if flag == ALGORITHM else NUMBER_FLAGS.get(flag)
    if key is None:
        return "The same in every configuration; leave it out"
    return f"Write it as `{key}`, beside `flags`"


def _values(
    at: Path,
    wanted: Sequence[FixedValue],
    fixed: Mapping[str, FixedValue],
    varied: Mapping[str, Sequence[FixedValue]],
) -> Iterator[Found]:
    section, name = str(at[-2]), str(at[-1])
    if name not in varied and name not in fixed:
        known = (*varied, *fixed)
        hint = f"; {nearest(name, known)}" if known else ""
        vary = f"to vary it, write its choices under `space.{section}`"
        yield at, f"The study neither fixes nor varies it{hint} ({vary})"
        return
    had = varied[name] if name in varied else (fixed[name],)
    for value in wanted:
        if not among(value, had):
            choices = ", ".join(dict.fromkeys(map(_written, had)))
            yield at, f"Is never {_written(value)} in this study; take from: {choices}"


def _written(value: FixedValue) -> str:
    return "null" if value is None else shown(value)
