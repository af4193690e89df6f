"""Which points of a space SGLang is asked about."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from search_spaces.nccl.knobs import without_nccl

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from search_spaces.configuration import Configuration, Value
    from search_spaces.space.parameters import Parameter
    from search_spaces.space.space import Space

MOST_LISTED = 20_000
"""Spaces of up to so many points are listed; larger ones are drawn from."""

_TRIES = 20


def points_to_ask(
    space: Space, baselines: Iterable[Configuration], *, most: int
) -> tuple[Configuration, ...]:
    """Baselines, then points that differ in more than NCCL's variables.

    All of them, or a sample in which each choice occurs: the same one whenever the same study is
    asked about.

    Args:
        space: Its points are in canonical form.
        baselines: Those that will be measured.
        most: Points that are asked about, beside the baselines.
    """
    first = {without_nccl(b): b for b in baselines}
    chance = random.Random(space.digest)  # noqa: S311 - a sample, no secret
    found: dict[Configuration, Configuration] = {}
    for point in space if len(space) <= MOST_LISTED else _drawn(space, most, chance):
        found.setdefault(without_nccl(point), point)
    points = [point for key, point in found.items() if key not in first]
    if len(points) > most:
        points = _covering(points, most, chance)
    return (*first.values(), *points)


def _drawn(space: Space, most: int, chance: random.Random) -> Iterator[Configuration]:
    def choose(parameter: Parameter) -> Value:
        return chance.choice(parameter.choices)

    for _ in range(most * _TRIES):
        point = space.sample(choose)
        if point in space:
            yield point


def _covering(points: list[Configuration], most: int, chance: random.Random) -> list[Configuration]:
    """So many points, those first that bring a choice which none before them has."""
    shuffled = chance.sample(points, len(points))
    seen: set[Hashable] = set()
    bringing: list[Configuration] = []
    others: list[Configuration] = []
    for point in shuffled:
        new = set(traits(point).items()) - seen
        seen |= new
        (bringing if new else others).append(point)
    return [*bringing, *others][:most]


def traits(configuration: Configuration) -> dict[str, Value]:
    """A configuration's choices by the names that users know, speculation first."""
    speculation = configuration.speculation
    return {
        "algorithm": speculation.algorithm,
        "topk": speculation.topk,
        "num_steps": speculation.num_steps,
        "num_draft_tokens": speculation.num_draft_tokens,
        "draft_tp": configuration.draft_tp,
        **dict(configuration.flags),
        **dict(configuration.env),
    }
