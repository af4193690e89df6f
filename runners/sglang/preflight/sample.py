"""The sample of points that the preflight checks with SGLang."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from search_spaces.nccl.knobs import without_nccl

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from search_spaces.configuration import Configuration, Value
    from search_spaces.space.space import Space


def points_to_ask(
    space: Space, baselines: Iterable[Configuration], *, most: int
) -> tuple[Configuration, ...]:
    """Return the baselines, then points that differ in more than NCCL variables.

    A sample contains every value of the space and is the same for the same study.

    Args:
        space: The search space.
        baselines: Configurations that are always checked.
        most: Maximum number of points besides the baselines.
    """
    first = {without_nccl(b): b for b in baselines}
    chance = random.Random(space.digest)  # noqa: S311 - a sample, no secret
    found: dict[Configuration, Configuration] = {}
    for point in space:
        found.setdefault(without_nccl(point), point)
    points = [point for key, point in found.items() if key not in first]
    if len(points) > most:
        points = _covering(points, most, chance)
    return (*first.values(), *points)


def _covering(points: list[Configuration], most: int, chance: random.Random) -> list[Configuration]:
    """Return `most` points; points with a value that no earlier point has come first."""
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
    """Return the values of a configuration by the names that users know, speculation first."""
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
