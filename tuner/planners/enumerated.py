"""Planners over the enumerated space: all points in order, or unseen points at random."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from results.records import Purpose
from tuner.planners.base import LaunchPlan, Observation, PlannedTrial, Planner, Stop

if TYPE_CHECKING:
    from collections.abc import Collection

    from search_spaces.configuration import Configuration
    from search_spaces.space.space import Space
    from tuner.planners.launches import LaunchBuilder


class _EnumeratedPlanner(Planner):
    """Keeps the unseen points; a subclass picks the next one."""

    def __init__(self, space: Space, launches: LaunchBuilder) -> None:
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


class ExhaustivePlanner(_EnumeratedPlanner):
    """Every legal point once, in the order of the space."""

    def _pick(self) -> Configuration:
        return next(iter(self._unseen))

    def launches_left(self) -> int | None:
        return self._launches.launches_left(self._unseen)


class RandomPlanner(_EnumeratedPlanner):
    """Unseen legal points, uniformly at random: the control for every cleverer planner."""

    def __init__(self, space: Space, launches: LaunchBuilder, *, seed: int) -> None:
        super().__init__(space, launches)
        self._seed = seed

    def _pick(self) -> Configuration:
        # Seeded by what was seen, not by a running generator: a resumed study goes on as if it
        # had never been interrupted.
        rng = random.Random(f"{self._seed}/{len(self._seen)}")  # noqa: S311 - not a secret
        return rng.choice(tuple(self._unseen))

    def launches_left(self) -> int | None:
        return None
