"""Fills launches: what else can be measured in a server that has to be started anyway."""

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


TELLING = 2
"""Draft steps from which on the draft runs forwards of its own: the first step's draft comes out of
draft extend. What has no draft forwards tells nothing of those of others."""


def may_anchor(configuration: Configuration, group: Iterable[Configuration]) -> bool:
    """Whether a launch of its own tells of the servers that are switched through a group."""
    deepest = max(other.setting.size[0] for other in group)
    return configuration.setting.size[0] >= min(TELLING, deepest)


@dataclass(frozen=True, slots=True)
class Needed:
    """What a whole search takes.

    Attributes:
        launches: So many.
        alone: So many if each configuration had a launch of its own.
        shared: The configurations that share a launch, or have a baseline as their anchor.
    """

    launches: int
    alone: int
    shared: tuple[tuple[Configuration, ...], ...]


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

    @property
    def hot_switch(self) -> bool:
        """Whether launches are filled at all."""
        return self._hot_switch

    def fall_back(self) -> None:
        """From now on each configuration has a launch of its own."""
        self._hot_switch = False

    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """Whether one launch can be measured at both."""
        return self._hot_switch and self._can_switch(a, b)

    def over(self, space: Space) -> LaunchBuilder:
        """The same for other points."""
        return LaunchBuilder(space, self._can_switch, hot_switch=self._hot_switch)

    @cached_property
    def _settings(self) -> dict[Drafter, list[Setting]]:
        """The settings of the space, ascending."""
        found: dict[Drafter, set[Setting]] = defaultdict(set)
        for speculation in self._space.speculations:
            found[speculation.drafter].add(Configuration(speculation).setting)
        return {drafter: sorted(found[drafter], key=lambda s: s.size) for drafter in found}

    def plan(self, first: PlannedTrial, seen: Collection[str]) -> LaunchPlan:
        """A launch for `first`, and for its siblings that are not among the keys in `seen`."""
        origin = first.configuration
        if first.purpose is Purpose.BASELINE:
            # What all else is held against is never a switched figure.
            return LaunchPlan((first,))
        others = (other for other in self.siblings(origin, seen) if other != origin)
        return LaunchPlan((first, *(PlannedTrial(other, Purpose.SEARCH) for other in others)))

    def siblings(self, origin: Configuration, seen: Collection[str]) -> Iterator[Configuration]:
        """Points that a server of `origin` can be switched to, without those in `seen`."""
        if not self._hot_switch:
            return
        for setting in self._settings.get(origin.speculation.drafter, ()):
            other = origin.with_setting(setting)
            if other.key not in seen and other in self._space and self._can_switch(origin, other):
                yield other

    def could_share(self, drafter: Drafter, seen: Collection[str]) -> bool:
        """Whether any two points of a drafter that are not in `seen` could share a launch."""
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
        """Packs given trials (unfinished ones, say) into as few launches as possible."""
        plans: list[list[PlannedTrial]] = []
        # Only configurations that are equal but for the setting are asked about: a space has
        # many launches, and to compare each point with all of them takes hours.
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
        """What measuring all of `configurations` takes from the beginning.

        Switched figures of a drafter are scored once one of its settings was measured in a
        launch of its own as well (`tuner.hot_switch.anchors`): that is one launch more for each,
        but where a baseline is such a setting.

        Args:
            configurations: Distinct ones.
            baselines: Those of them that have a launch of their own in any case.
            at_most: Where counting stops, if more launches are needed than this.
        """
        alone = 0
        groups: list[list[Configuration]] = []
        servers: dict[Hashable, list[list[Configuration]]] = {}
        for configuration in configurations:
            if at_most is not None and len(groups) > at_most:
                break
            alone += 1
            near = servers.setdefault(_server(configuration), []) if self._hot_switch else []
            for group in near:
                if self._can_switch(group[0], configuration):
                    group.append(configuration)
                    break
            else:
                groups.append([configuration])
                near.append(groups[-1])
        own = set(baselines)
        # Baselines among themselves share nothing.
        shared = tuple(tuple(g) for g in groups if len(g) > 1 and not own.issuperset(g))
        launches = sum(len(own & set(group)) + (not own.issuperset(group)) for group in groups)
        return Needed(launches + _made_for_anchors(shared, own), alone, shared)

    def launches_left(self, configurations: Iterable[Configuration]) -> int:
        """The same on the way, where the launch of an anchor was made."""
        return len(self.group(PlannedTrial(c, Purpose.SEARCH) for c in configurations))


def everything(
    space: Space,
    baselines: Iterable[Configuration],
    *,
    without: Collection[Configuration] = frozenset(),
) -> Iterator[Configuration]:
    """The baselines and every point but some, each once."""
    yield from (b for b in dict.fromkeys(baselines) if b not in space)
    yield from (point for point in space if point not in without)


def _made_for_anchors(
    shared: Iterable[Sequence[Configuration]], own: Collection[Configuration]
) -> int:
    """Launches of one setting that are made to be the anchor of others.

    Each drafter needs one, and each server beside whose start nobody is measured; a baseline that
    shares it is one.
    """
    anchored: dict[Drafter, bool] = {}
    without_start: dict[Drafter, int] = defaultdict(int)
    for group in shared:
        drafter = group[0].speculation.drafter
        has_own = any(c in own and may_anchor(c, group) for c in group)
        anchored[drafter] = anchored.get(drafter, False) or has_own
        settings = [c.setting for c in group if c not in own]
        without_start[drafter] += not has_own and largest(settings) not in settings
    return sum(max(without_start[d], not known) for d, known in anchored.items())


def _server(configuration: Configuration) -> Hashable:
    """Equal for configurations that differ in nothing but what a running server can take on."""
    if configuration.setting == Setting():
        return configuration
    return (
        configuration.speculation.drafter,
        configuration.draft_tp,
        configuration.flags,
        configuration.env,
    )
