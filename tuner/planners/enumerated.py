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
        self._unseen = dict.fromkeys(space)
        self._seen: set[str] = set()
        self._launches = launches

    def propose(self) -> LaunchPlan | Stop:
        if not self._unseen:
            return Stop("exhausted")
        return self._launches.plan(PlannedTrial(self._pick(), Purpose.SEARCH), self._seen)

    def unjudged(self) -> Collection[Configuration]:
        return self._unseen

    def _pick(self) -> Configuration:
        raise NotImplementedError

    def observe(self, observation: Observation) -> None:
        self._seen.add(observation.configuration.key)
        self._unseen.pop(observation.configuration, None)


@register("exhaustive", "all points in order", auto="all")
class ExhaustivePlanner(_EnumeratedPlanner):
    """Proposes every legal point once, in the order of the space."""

    def _pick(self) -> Configuration:
        return next(iter(self._unseen))

    def launches_left(self) -> int | None:
        return self._launches.launches_left(self._unseen)


@register("random", "all points in random order")
class RandomPlanner(_EnumeratedPlanner):
    """Proposes legal points uniformly at random. Other planners must beat this one."""

    def _pick(self) -> Configuration:
        # The seed depends on the number of results, not on a running generator, so that a resumed
        # study continues with the same points.
        rng = random.Random(f"{self._seed}/{len(self._seen)}")  # noqa: S311 - not a secret
        return rng.choice(tuple(self._unseen))

    def launches_left(self) -> int | None:
        return None
