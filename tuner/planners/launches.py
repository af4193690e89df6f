"""Fills launches: what else can be measured in a server that has to be started anyway."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from results.records import Purpose
from search_spaces.configuration import Configuration, Setting
from tuner.planners.base import LaunchPlan, PlannedTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from search_spaces import Space


class LaunchBuilder:
    """Turns configurations into launch plans.

    A launch costs minutes, a switch milliseconds: so whatever the running server can be switched
    to, and was not measured yet, is measured in the same launch.

    Args:
        space: The legal points.
        can_switch: `Runner.can_switch`.
        hot_switch: False measures one configuration per launch.
    """

    def __init__(
        self,
        space: Space,
        can_switch: Callable[[Configuration, Configuration], bool],
        *,
        hot_switch: bool = True,
    ) -> None:
        self._space = space
        self._can_switch = can_switch
        self._hot_switch = hot_switch

    @cached_property
    def _settings(self) -> tuple[Setting, ...]:
        return tuple(
            Setting(steps)
            for steps in sorted(
                {p.speculation.num_steps for p in self._space.points} - {None},  # type: ignore[type-var]
            )
        )

    def plan(self, first: PlannedTrial, seen: Collection[str]) -> LaunchPlan:
        """A launch for `first`, and for its siblings that are not among the keys in `seen`."""
        if not self._hot_switch:
            return LaunchPlan((first,))
        origin = first.configuration
        known = {*seen, origin.key}
        siblings = []
        for setting in self._settings:
            other = origin.with_setting(setting)
            if other.key not in known and other in self._space and self._can_switch(origin, other):
                siblings.append(PlannedTrial(other, Purpose.SEARCH))
        return LaunchPlan((first, *siblings))

    def group(self, trials: Iterable[PlannedTrial]) -> tuple[LaunchPlan, ...]:
        """Packs given trials (unfinished ones, say) into as few launches as possible."""
        plans: list[list[PlannedTrial]] = []
        for trial in trials:
            for plan in plans if self._hot_switch else ():
                if self._can_switch(plan[0].configuration, trial.configuration):
                    plan.append(trial)
                    break
            else:
                plans.append([trial])
        return tuple(LaunchPlan(tuple(plan)) for plan in plans)

    def launches_needed(self, configurations: Sequence[Configuration]) -> int:
        """How many launches measuring all of `configurations` takes."""
        return len(self.group(PlannedTrial(c, Purpose.SEARCH) for c in configurations))
