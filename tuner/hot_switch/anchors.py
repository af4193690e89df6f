"""Anchors: add the reference run to shared launches, or launch it first.

Switched results count only if a setting of the same drafter (algorithm and topk) agreed with its
separate launch (`tuner.hot_switch.faithful`), once per study. This setting is the anchor or
reference run. It is a baseline with this drafter, or else a trial of the search, so its separate
launch is not extra work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import Purpose
from search_spaces.configuration import Setting, largest
from tuner.planners.base import Anchor, LaunchPlan, PlannedTrial
from tuner.planners.launches import MIN_ANCHOR_STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from results.records import Trial
    from search_spaces.configuration import Configuration, Drafter
    from tuner.hot_switch.switching import Switching
    from tuner.planners.launches import LaunchBuilder


class Anchors:
    """Turns a launch plan into one whose results can count.

    Args:
        launches: Groups configurations into launches.
        may_start: Whether a server can start at a configuration that is not measured.
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
        """Return the plan unchanged, with a reference run, or a plan that must come before it.

        Args:
            plan: Trials that one server could measure.
            switching: State of hot switching in the study.
            seen: Keys of configurations that need no measurement.
            elsewhere: Whether a launch for other points that have a reference run may come first.
        """
        first = plan.trials[0]
        if first.purpose is Purpose.BASELINE or not first.configuration.speculation.enabled:
            return plan
        if not switching.is_faithful(first.configuration.speculation.drafter):
            return self._unproven(plan, switching, seen, elsewhere=elsewhere)
        if not plan.settings:
            return plan
        disturbed = switching.is_disturbed(first.configuration)
        anchored = None if disturbed else self._anchored(plan, switching)
        # One more window, if these flags ran separately and no extra setting is needed.
        if anchored is not None and anchored.spare is None:
            return _start_first(anchored)
        if _measures_its_start(plan):
            return _start_first(plan)
        # No measured setting is the one of the start, so the launch needs a reference run. Without
        # one the first setting is launched separately.
        return anchored or LaunchPlan((_first_alone(plan),))

    def _unproven(
        self, plan: LaunchPlan, switching: Switching, seen: Collection[str], *, elsewhere: bool
    ) -> LaunchPlan:
        """`secured` for a drafter that has not passed the reference check."""
        drafter = plan.trials[0].configuration.speculation.drafter
        several = len(plan.trials) > 1
        if (anchored := self._anchored(plan, switching)) is not None:
            known = {*seen, *(t.configuration.key for t in plan.trials)}
            # A trial that is launched anyway can check whether later launches can be shared.
            if several or self._launches.could_share(drafter, known):
                return _start_first(anchored)
            return plan
        if not several:
            return plan
        if elsewhere and (other := self._elsewhere(drafter, switching, seen)) is not None:
            return _start_first(other)
        return LaunchPlan((_first_alone(plan),))

    def sizes(self, plans: Sequence[LaunchPlan], switching: Switching) -> list[int]:
        """Number of settings of each launch, with the reference runs that are still needed."""
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
            if any(t.configuration.speculation.drafter == drafter for t in switching.separate):
                sizes[indices[0]] += 1
            else:
                # One setting is launched separately and then repeated in the shared launch.
                sizes.append(1)
                if len(indices) == 1 and sizes[indices[0]] == 2:
                    sizes[indices[0]] = 1  # only one other setting is left
        return sizes

    def _needs_an_anchor(self, plan: LaunchPlan, switching: Switching) -> bool:
        """Whether one setting must be launched separately and repeated in the shared launch."""
        return not _measures_its_start(plan) and self._anchored(plan, switching) is None

    def _anchored(self, plan: LaunchPlan, switching: Switching) -> LaunchPlan | None:
        """The plan with a separately measured trial as its reference run, or `None`."""
        first = plan.trials[0].configuration
        separate = [
            trial
            for trial in switching.separate
            if trial.configuration != first
            and self._launches.can_switch(first, trial.configuration)
        ]
        depths = [_depth(t.configuration) for t in plan.trials]
        by_number = sorted(separate, key=lambda t: t.number)
        deep = [t for t in by_number if _depth(t.configuration) >= MIN_ANCHOR_STEPS]
        if (found := self._with_anchor(plan, deep, switching)) is not None:
            return found
        # A setting without draft forwards cannot check those of other settings.
        shallow = [t for t in by_number if _depth(t.configuration) < MIN_ANCHOR_STEPS]
        return (
            self._with_anchor(plan, shallow, switching) if max(depths) < MIN_ANCHOR_STEPS else None
        )

    def _with_anchor(
        self, plan: LaunchPlan, anchors: Sequence[Trial], switching: Switching
    ) -> LaunchPlan | None:
        """The plan with the first anchor that its server is switched to, not started at."""
        first = plan.trials[0].configuration
        settings = [t.configuration.setting for t in plan.trials]
        for trial in anchors:
            setting = trial.configuration.setting
            if setting != largest((setting, *settings)):
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
        """The largest launch of other points that has a reference run; `None` if there is none."""
        found: list[LaunchPlan] = []
        for trial in switching.separate:
            if trial.configuration.speculation.drafter != drafter:
                continue
            points = self._launches.siblings(trial.configuration, seen)
            trials = tuple(PlannedTrial(point, Purpose.SEARCH) for point in points)
            if trials and (plan := self._anchored(LaunchPlan(trials), switching)) is not None:
                found.append(plan)
        return max(found, key=lambda plan: len(plan.trials), default=None)


def _first_alone(plan: LaunchPlan) -> PlannedTrial:
    """The trial to launch separately as the reference run of the others.

    It should not be the largest setting, because the server would start at it instead of switching
    to it. It should have draft forwards, or those of other settings stay unchecked.
    """
    first = plan.trials[0]
    start = largest(t.configuration.setting for t in plan.trials)
    deep = [t for t in plan.trials if _depth(t.configuration) >= MIN_ANCHOR_STEPS]
    if first.purpose is not Purpose.SEARCH or (
        first in deep and first.configuration.setting != start
    ):
        return first
    return min(deep, key=lambda t: t.configuration.setting.size, default=first)


def _is_too_large(start: Configuration, switching: Switching) -> bool:
    """Whether this server failed separately with as many steps and tokens, or fewer."""
    return any(
        failed.with_setting(start.setting) == start
        and largest((failed.setting, start.setting)) == start.setting
        for failed in switching.cannot_run
        if failed.speculation.drafter == start.speculation.drafter
    )


def _start(plan: LaunchPlan) -> Setting:
    """The setting that the server of the plan starts at."""
    return largest(plan.settings)


def _measures_its_start(plan: LaunchPlan) -> bool:
    return any(t.configuration.setting == _start(plan) for t in plan.trials)


def _start_first(plan: LaunchPlan) -> LaunchPlan:
    """Move the setting of the start to the front; the others are compared with it."""
    if not plan.settings:
        return plan
    start = _start(plan)
    ordered = sorted(plan.trials, key=lambda t: t.configuration.setting != start)
    return replace(plan, trials=tuple(ordered))


def _depth(configuration: Configuration) -> int:
    return configuration.speculation.num_steps or 0
