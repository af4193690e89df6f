"""What is wrong with a study's environment variables, each by itself and together."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from search_spaces.nccl.pairs import BOUNDED, crossed_bounds, nothing_left, shadowed
from search_spaces.variables import value_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_spaces.study_file.study import Server, SpaceSpec
    from search_spaces.study_file.yaml_nodes import Path


def check_env(server: Server | None, space: SpaceSpec | None) -> Iterator[tuple[Path, str]]:
    """What NCCL or SGLang would refuse, or not take as it is written, in a study's variables."""
    fixed = {} if server is None else server.env
    tuned = {} if space is None else space.env
    for name, value in fixed.items():
        if (problem := value_problem(name, value)) is not None:
            yield ("server", "env", name), problem
    for name, values in tuned.items():
        for index, value in enumerate(values):
            at: Path = ("space", "env", name, index)
            if (problem := value_problem(name, value)) is not None:
                yield at, problem
            elif value in values[:index]:
                same = "choice 1" if values[0] == value else f"choice {values.index(value) + 1}"
                yield at, f"Is the same as {same} ({value}): keep one of them"
    yield from _together(fixed, tuned)


def _together(
    fixed: dict[str, str | None], tuned: dict[str, tuple[str | None, ...]]
) -> Iterator[tuple[Path, str]]:
    always = {name: value for name, value in fixed.items() if value is not None}
    for least, most, message in crossed_bounds(always):
        last = max((least, most), key=list(fixed).index)
        yield ("server", "env", last), f"{message}; write a minimum that is not above the maximum"
    if (lost := nothing_left(always)) is not None:
        yield ("server", "env", "NCCL_PROTO"), f"{lost}; leave one of them out"
    for name in tuned:
        for loser, winner in shadowed({**always, name: "1"}):
            if loser == name:
                message = f"NCCL does not look at it beside `server.env.{winner}`: leave one out"
                yield ("space", "env", name), message
    yield from _never_together(always, tuned)
    if "1" in tuned.get("NCCL_P2P_DISABLE", ()) and "LOC" in tuned.get("NCCL_P2P_LEVEL", ()):
        index = tuned["NCCL_P2P_LEVEL"].index("LOC")
        message = "LOC is what NCCL_P2P_DISABLE 1 is, one server in two points: leave it out"
        yield ("space", "env", "NCCL_P2P_LEVEL", index), message


def _never_together(
    always: dict[str, str], tuned: dict[str, tuple[str | None, ...]]
) -> Iterator[tuple[Path, str]]:
    """Choices of which every combination crosses."""
    bounded = [name for name in tuned if name in BOUNDED]
    if not bounded or any(True for _ in crossed_bounds(always)):
        return
    message = ""
    for values in itertools.product(*(tuned[name] for name in bounded)):
        chosen = {name: v for name, v in zip(bounded, values, strict=True) if v is not None}
        crossed = next(crossed_bounds(always | chosen), None)
        if crossed is None:
            return
        message = crossed[-1]
    yield ("space", "env", bounded[-1]), f"No choice holds: {message}"
