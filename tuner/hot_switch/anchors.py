"""Anchors: which launch plans may be switched through, and what has to be measured first.

A switched figure is scored only where a setting of the same drafter (algorithm and topk) agreed
with a launch of its own (`tuner.hot_switch.faithful`), once per study. That launch is a
baseline's where one has that drafter, else a trial of the search: all of them are figures that
the study wants anyway.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import Purpose
from search_spaces.configuration import Setting, largest
from tuner.planners.base import Anchor, LaunchPlan, PlannedTrial
from tuner.planners.launches import TELLING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from results.records import Trial
    from search_spaces.configuration import Configuration, Drafter
    from tuner.hot_switch.switching import Switching
    from tuner.planners.launches import LaunchBuilder


class Anchors:
    """Turns what could share a launch into what may.

    Args:
        launches: Fills launches.
        may_start: Whether a server could be started at a configuration that nobody measures.
    """

    def __init__(self, launches: LaunchBuilder, may_start: Callable[[Configuration], bool]) -> None:
        self._launches = launches
        self._may_start = may_start

    def secured(
        self,
        plan: LaunchPlan,
        switching: Switching,
        seen: Collection[str],
        *,
        elsewhere: bool = True,
    ) -> LaunchPlan:
        """The plan as it may be launched: as it is, with an anchor, or another one before it.

        Args:
            plan: Trials that one server could be switched through.
            switching: What is known of switching in this study.
            seen: Keys of what needs no measurement any more.
            elsewhere: Whether a launch for other points may come first, since those have an anchor.
        """
        first = plan.trials[0]
        if first.purpose is Purpose.BASELINE or not first.configuration.speculation.enabled:
            return plan
        if not switching.is_faithful(first.configuration.speculation.drafter):
            return self._unproven(plan, switching, seen, elsewhere=elsewhere)
        if not plan.settings:
            return plan
        spoilt = switching.is_spoilt(first.configuration)
        anchored = None if spoilt else self._anchored(plan, switching)
        # A window more, where a server of these flags has run by itself and no state is needed.
        if anchored is not None and anchored.spare is None:
            return _start_first(anchored)
        if _measures_its_start(plan):
            return _start_first(plan)
        # No state of it is known to be SGLang's own: an anchor tells once more, which is the first
        # of them where there is none.
        return anchored or LaunchPlan((_first_alone(plan),))

    def _unproven(
        self, plan: LaunchPlan, switching: Switching, seen: Collection[str], *, elsewhere: bool
    ) -> LaunchPlan:
        """The same while no anchor of the drafter agreed."""
        drafter = plan.trials[0].configuration.speculation.drafter
        several = len(plan.trials) > 1
        if (anchored := self._anchored(plan, switching)) is not None:
            known = {*seen, *(t.configuration.key for t in plan.trials)}
            # One that has a launch of its own in any case tells by the way whether later
            # launches may be switched through.
            if several or self._launches.could_share(drafter, known):
                return _start_first(anchored)
            return plan
        if not several:
            return plan
        if elsewhere and (other := self._elsewhere(drafter, switching, seen)) is not None:
            return _start_first(other)
        return LaunchPlan((_first_alone(plan),))

    def sizes(self, plans: Sequence[LaunchPlan], switching: Switching) -> list[int]:
        """How many settings each launch measures, with what anchors take until there are some."""
        sizes = [len(plan.trials) for plan in plans]
        shared: dict[Drafter, list[int]] = {}
        for index, plan in enumerate(plans):
            if len(plan.trials) > 1:
                drafter = plan.trials[0].configuration.speculation.drafter
                shared.setdefault(drafter, []).append(index)
        for drafter, indices in shared.items():
            if switching.is_faithful(drafter):
                unanchored = [i for i in indices if self._needs_an_anchor(plans[i], switching)]
                sizes += [1] * len(unanchored)
                continue
            if any(t.configuration.speculation.drafter == drafter for t in switching.alone):
                sizes[indices[0]] += 1
            else:
                # One of them by itself first, and then once more among the others.
                sizes.append(1)
                if len(indices) == 1 and sizes[indices[0]] == 2:
                    sizes[indices[0]] = 1  # the other one has nothing to share a launch with
        return sizes

    def _needs_an_anchor(self, plan: LaunchPlan, switching: Switching) -> bool:
        """Whether one of them has a launch of its own first, and is measured again beside them."""
        return not _measures_its_start(plan) and self._anchored(plan, switching) is None

    def _anchored(self, plan: LaunchPlan, switching: Switching) -> LaunchPlan | None:
        """The plan with a trial that was measured in a launch of its own before it."""
        first = plan.trials[0].configuration
        own = [
            trial
            for trial in switching.alone
            if trial.configuration != first
            and self._launches.can_switch(first, trial.configuration)
        ]
        depths = [_depth(t.configuration) for t in plan.trials]
        by_number = sorted(own, key=lambda t: t.number)
        telling = [t for t in by_number if _depth(t.configuration) >= TELLING]
        if (found := self._beside(plan, telling, switching)) is not None:
            return found
        # What has no draft forwards tells nothing of those of others.
        untelling = [t for t in by_number if _depth(t.configuration) < TELLING]
        return self._beside(plan, untelling, switching) if max(depths) < TELLING else None

    def _beside(
        self, plan: LaunchPlan, anchors: Sequence[Trial], switching: Switching
    ) -> LaunchPlan | None:
        """The plan with the first of these that its server would be switched to, not started at."""
        first = plan.trials[0].configuration
        settings = [t.configuration.setting for t in plan.trials]
        for trial in anchors:
            own = trial.configuration.setting
            if own != largest((own, *settings)):
                return replace(plan, anchor=Anchor(trial.number, trial.configuration))
        for trial in anchors:
            steps, draft_tokens = trial.configuration.setting.size
            spare = Setting(steps + 1, draft_tokens + 1)
            start = first.with_setting(spare)
            if self._may_start(start) and not _is_too_large(start, switching):
                anchor = Anchor(trial.number, trial.configuration)
                return replace(plan, anchor=anchor, spare=spare)
        return None

    def _elsewhere(
        self, drafter: Drafter, switching: Switching, seen: Collection[str]
    ) -> LaunchPlan | None:
        """A launch for points beside which there is an anchor: that of most points."""
        found: list[LaunchPlan] = []
        for trial in switching.alone:
            if trial.configuration.speculation.drafter != drafter:
                continue
            points = self._launches.siblings(trial.configuration, seen)
            trials = tuple(PlannedTrial(point, Purpose.SEARCH) for point in points)
            if trials and (plan := self._anchored(LaunchPlan(trials), switching)) is not None:
                found.append(plan)
        return max(found, key=lambda plan: len(plan.trials), default=None)


def _first_alone(plan: LaunchPlan) -> PlannedTrial:
    """What is measured in a launch of its own, to be the others' anchor.

    Where there is a choice not the largest, since the server would be started at it and not
    switched to it; and none without draft forwards, which would leave them unchecked.
    """
    first = plan.trials[0]
    start = largest(t.configuration.setting for t in plan.trials)
    telling = [t for t in plan.trials if _depth(t.configuration) >= TELLING]
    if first.purpose is not Purpose.SEARCH or (
        first in telling and first.configuration.setting != start
    ):
        return first
    return min(telling, key=lambda t: t.configuration.setting.size, default=first)


def _is_too_large(start: Configuration, switching: Switching) -> bool:
    """Whether the same server failed in a launch of its own with no more steps and tokens."""
    return any(
        failed.with_setting(start.setting) == start
        and largest((failed.setting, start.setting)) == start.setting
        for failed in switching.cannot_run
        if failed.speculation.drafter == start.speculation.drafter
    )


def _start(plan: LaunchPlan) -> Setting:
    """The setting that a switched server of the plan is started at."""
    return largest(plan.settings)


def _measures_its_start(plan: LaunchPlan) -> bool:
    return any(t.configuration.setting == _start(plan) for t in plan.trials)


def _start_first(plan: LaunchPlan) -> LaunchPlan:
    """The plan with the setting of the start before the others, which are held against it."""
    if not plan.settings:
        return plan
    start = _start(plan)
    ordered = sorted(plan.trials, key=lambda t: t.configuration.setting != start)
    return replace(plan, trials=tuple(ordered))


def _depth(configuration: Configuration) -> int:
    return configuration.speculation.num_steps or 0
