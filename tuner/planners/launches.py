"""Group configurations into launches: one server can measure several settings."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from results.records import Purpose
from search_spaces.configuration import Configuration, Setting, largest
from tuner.planners.base import LaunchPlan, PlannedTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

    from search_spaces.configuration import Drafter
    from search_spaces.space.space import Space


MIN_ANCHOR_STEPS = 2
"""Minimum draft steps of a reference run. Draft extend makes the draft of the first step, so one
step has no draft forwards and cannot check those of other settings."""


def may_anchor(configuration: Configuration, group: Iterable[Configuration]) -> bool:
    """Whether a separate launch of `configuration` can check a shared launch of `group`."""
    deepest = max(other.setting.size[0] for other in group)
    return configuration.setting.size[0] >= min(MIN_ANCHOR_STEPS, deepest)


@dataclass(frozen=True, slots=True)
class Needed:
    """Number of launches of a whole search.

    Attributes:
        launches: Number of launches.
        separate: Number of launches without hot switching.
        shared: Groups of configurations that share a launch or have a baseline as reference run.
    """

    launches: int
    separate: int
    shared: tuple[tuple[Configuration, ...], ...]


class LaunchBuilder:
    """Turns configurations into launch plans.

    A launch costs minutes and a switch milliseconds, so a launch measures every unmeasured setting
    that its server can be switched to.

    Args:
        space: The legal points.
        can_switch: `HotSwitch.can_switch` of the runner.
        hot_switch: Whether launches are shared.
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

    @property
    def hot_switch(self) -> bool:
        """Whether launches are shared."""
        return self._hot_switch

    def disable_hot_switch(self) -> None:
        """Launch every configuration separately from now on."""
        self._hot_switch = False

    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """Whether one launch can measure both configurations."""
        return self._hot_switch and self._can_switch(a, b)

    def for_space(self, space: Space) -> LaunchBuilder:
        """A builder for another space."""
        return LaunchBuilder(space, self._can_switch, hot_switch=self._hot_switch)

    @cached_property
    def _settings(self) -> dict[Drafter, list[Setting]]:
        """Settings of each drafter in the space, ascending."""
        found: dict[Drafter, set[Setting]] = defaultdict(set)
        for speculation in self._space.speculations:
            found[speculation.drafter].add(Configuration(speculation).setting)
        return {drafter: sorted(found[drafter], key=lambda s: s.size) for drafter in found}

    def plan(self, first: PlannedTrial, seen: Collection[str]) -> LaunchPlan:
        """A launch for `first` and its siblings whose keys are not in `seen`."""
        origin = first.configuration
        if first.purpose is Purpose.BASELINE:
            # Baselines are always launched separately.
            return LaunchPlan((first,))
        others = (other for other in self.siblings(origin, seen) if other != origin)
        return LaunchPlan((first, *(PlannedTrial(other, Purpose.SEARCH) for other in others)))

    def siblings(self, origin: Configuration, seen: Collection[str]) -> Iterator[Configuration]:
        """Points that a server of `origin` can be switched to and whose keys are not in `seen`."""
        if not self._hot_switch:
            return
        for setting in self._settings.get(origin.speculation.drafter, ()):
            other = origin.with_setting(setting)
            if other.key not in seen and other in self._space and self._can_switch(origin, other):
                yield other

    def could_share(self, drafter: Drafter, seen: Collection[str]) -> bool:
        """Whether two points of a drafter, with keys not in `seen`, could share a launch."""
        started: dict[Hashable, list[Configuration]] = defaultdict(list)
        for point in self._space:
            if point.speculation.drafter != drafter or point.key in seen:
                continue
            near = started[_server(point)]
            if any(self.can_switch(other, point) for other in near):
                return True
            near.append(point)
        return False

    def group(self, trials: Iterable[PlannedTrial]) -> tuple[LaunchPlan, ...]:
        """Group trials into as few launches as possible."""
        plans: list[list[PlannedTrial]] = []
        # Compare only configurations that differ in the setting alone. Comparing each point with
        # every launch of a large space takes hours.
        alike: dict[Hashable, list[list[PlannedTrial]]] = defaultdict(list)
        for trial in trials:
            shares = self._hot_switch and trial.purpose is not Purpose.BASELINE
            near = alike[_server(trial.configuration)] if shares else []
            for plan in near:
                if self._can_switch(plan[0].configuration, trial.configuration):
                    plan.append(trial)
                    break
            else:
                plans.append([trial])
                near.append(plans[-1])
        return tuple(LaunchPlan(tuple(plan)) for plan in plans)

    def needed(
        self,
        configurations: Iterable[Configuration],
        *,
        baselines: Collection[Configuration] = (),
        at_most: int | None = None,
    ) -> Needed:
        """Number of launches that measure all of `configurations`.

        Each drafter needs one separate launch for its reference run (`tuner.hot_switch.anchors`),
        unless a baseline is one of its settings.

        Args:
            configurations: Distinct configurations.
            baselines: Those of them that are launched separately in any case.
            at_most: Stop counting above this number.
        """
        separate = 0
        groups: list[list[Configuration]] = []
        servers: dict[Hashable, list[list[Configuration]]] = {}
        for configuration in configurations:
            if at_most is not None and len(groups) > at_most:
                break
            separate += 1
            near = servers.setdefault(_server(configuration), []) if self._hot_switch else []
            for group in near:
                if self._can_switch(group[0], configuration):
                    group.append(configuration)
                    break
            else:
                groups.append([configuration])
                near.append(groups[-1])
        launched = set(baselines)
        # Baselines do not share a launch.
        shared = tuple(tuple(g) for g in groups if len(g) > 1 and not launched.issuperset(g))
        launches = sum(
            len(launched & set(group)) + (not launched.issuperset(group)) for group in groups
        )
        return Needed(launches + _extra_for_anchors(shared, launched), separate, shared)

    def launches_left(self, configurations: Iterable[Configuration]) -> int:
        """Number of launches for the remaining configurations, without reference runs."""
        return len(self.group(PlannedTrial(c, Purpose.SEARCH) for c in configurations))


def everything(
    space: Space,
    baselines: Iterable[Configuration],
    *,
    without: Collection[Configuration] = frozenset(),
) -> Iterator[Configuration]:
    """The baselines, then every other point that is not in `without`."""
    yield from (b for b in dict.fromkeys(baselines) if b not in space)
    yield from (point for point in space if point not in without)


def _extra_for_anchors(
    shared: Iterable[Sequence[Configuration]], launched: Collection[Configuration]
) -> int:
    """Number of separate launches that only serve as reference runs.

    Each drafter needs one reference run, and so does each server whose setting of the start is not
    measured. A baseline can be the reference run.
    """
    anchored: dict[Drafter, bool] = {}
    without_start: dict[Drafter, int] = defaultdict(int)
    for group in shared:
        drafter = group[0].speculation.drafter
        has_baseline = any(c in launched and may_anchor(c, group) for c in group)
        anchored[drafter] = anchored.get(drafter, False) or has_baseline
        settings = [c.setting for c in group if c not in launched]
        without_start[drafter] += not has_baseline and largest(settings) not in settings
    return sum(max(without_start[d], not known) for d, known in anchored.items())


def _server(configuration: Configuration) -> Hashable:
    """Key that is equal for configurations that differ only in the setting."""
    if configuration.setting == Setting():
        return configuration
    return (
        configuration.speculation.drafter,
        configuration.draft_tp,
        configuration.flags,
        configuration.env,
    )
