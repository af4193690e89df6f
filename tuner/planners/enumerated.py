"""Planners that list the space: all points in order, or in random order."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from results.records import Purpose
from tuner.planners.base import LaunchPlan, Observation, PlannedTrial, Planner, Stop
from tuner.planners.registry import register

if TYPE_CHECKING:
    from collections.abc import Collection

    from search_spaces.configuration import Configuration
    from search_spaces.space.space import Space
    from tuner.planners.launches import LaunchBuilder


class _EnumeratedPlanner(Planner):
    """Keeps the points without a result; a subclass picks the next point."""

    def __init__(self, space: Space, launches: LaunchBuilder, *, seed: int = 0) -> None:
        self._seed = seed
        self._remaining = dict.fromkeys(space)
        self._observed_keys: set[str] = set()
        self._launches = launches

    def propose(self) -> LaunchPlan | Stop:
        if not self._remaining:
            return Stop()
        return self._launches.plan(PlannedTrial(self._pick(), Purpose.SEARCH), self._observed_keys)

    def unjudged(self) -> Collection[Configuration]:
        return self._remaining

    def _pick(self) -> Configuration:
        raise NotImplementedError

    def observe(self, observation: Observation) -> None:
        self._observed_keys.add(observation.configuration.key)
        self._remaining.pop(observation.configuration, None)


@register("exhaustive", "all points in order", auto="all")
class ExhaustivePlanner(_EnumeratedPlanner):
    """Proposes every legal point once, in the order of the space."""

    def _pick(self) -> Configuration:
        return next(iter(self._remaining))

    def launches_left(self) -> int | None:
        return self._launches.launches_left(self._remaining)


@register("random", "all points in random order")
class RandomPlanner(_EnumeratedPlanner):
    """Proposes legal points uniformly at random. Other planners must beat this one."""

    def _pick(self) -> Configuration:
        # The seed depends on the number of results, not on a running generator, so that a resumed
        # study continues with the same points.
        rng = random.Random(f"{self._seed}/{len(self._observed_keys)}")  # noqa: S311 - not a secret
        return rng.choice(tuple(self._remaining))

    def launches_left(self) -> int | None:
        return None
