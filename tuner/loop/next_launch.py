"""What comes next in a study: what a killed run left, the baselines, then the planner's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.records import LaunchState, Purpose, TrialState
from tuner.planners.base import LaunchPlan, PlannedTrial, Stop

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from results.records import Launch, Trial
    from search_spaces.configuration import Configuration
    from tuner.hot_switch.anchors import Anchors
    from tuner.hot_switch.switching import Switching
    from tuner.loop.equivalent_configurations import EquivalentConfigurations
    from tuner.planners.base import Planner
    from tuner.planners.launches import LaunchBuilder

_UNJUDGED = frozenset({TrialState.RUNNING, TrialState.FAILED})


class NextLaunch:
    """Puts unfinished trials and baselines before the planner. Holds no state of its own.

    Args:
        baselines: By name, in the order in which they are measured.
        planner: Asked once nothing else is due.
        launches: Fills launches.
        anchors: Say what of that may be launched.
        same: Knows what tells most of a planner's choice; `None` asks nobody.
    """

    def __init__(
        self,
        baselines: Mapping[str, Configuration],
        planner: Planner,
        launches: LaunchBuilder,
        anchors: Anchors,
        same: EquivalentConfigurations | None = None,
    ) -> None:
        self._baselines = baselines
        self.planner = planner
        self._launches = launches
        self._anchors = anchors
        self._same = same

    def next(
        self,
        trials: Sequence[Trial],
        launches: Sequence[Launch],
        switching: Switching,
        *,
        aside: Collection[str] = (),
    ) -> LaunchPlan | Stop:
        """The next launch, given everything that is stored.

        Args:
            trials: All that are stored.
            launches: Likewise.
            switching: What they have shown of it.
            aside: Keys of points that need no launch and are not stored.
        """
        if switching.gave_up is not None:
            self.fall_back()
        judged = {t.configuration.key for t in trials if t.state is not TrialState.FAILED}
        judged.update(aside)
        unfinished = [t for t in trials if t.state is TrialState.RUNNING]
        if unfinished:
            if (alone := _left_alone(unfinished[0], launches)) is not None:
                return alone
            plan = self._together(unfinished, launches)
            return self._anchors.secured(plan, switching, judged, elsewhere=False)
        for configuration in self._baselines.values():
            if configuration.key not in judged:
                first = PlannedTrial(configuration, Purpose.BASELINE)
                seen = judged | self._baseline_keys()
                plan = self._launches.plan(first, seen)
                return self._anchors.secured(plan, switching, seen)
        chosen = self.planner.propose()
        if isinstance(chosen, Stop):
            return chosen
        return self._anchors.secured(self._before(chosen, judged), switching, judged)

    def fall_back(self) -> None:
        """From now on each setting has a launch of its own."""
        self._launches.fall_back()

    def _before(self, plan: LaunchPlan, judged: set[str]) -> LaunchPlan:
        """What is launched before it, where its server may be another point's."""
        if self._same is None:
            return plan
        chosen = plan.trials[0].configuration
        before = self._same.before(chosen, judged)
        if before == chosen:
            return plan
        return self._launches.plan(PlannedTrial(before, Purpose.SEARCH), judged)

    def _baseline_keys(self) -> set[str]:
        return {configuration.key for configuration in self._baselines.values()}

    def _together(self, trials: Sequence[Trial], launches: Sequence[Launch]) -> LaunchPlan:
        """Regroups trials that a launch left unjudged."""
        left = [t for t in trials if _left_alone(t, launches) is None]
        return self._launches.group(PlannedTrial(t.configuration, t.purpose) for t in left)[0]

    def sizes_left(
        self,
        trials: Sequence[Trial],
        launches: Sequence[Launch],
        switching: Switching,
        *,
        aside: Collection[str] = (),
    ) -> list[int] | None:
        """How many settings each launch to come measures, an anchor among them.

        Args:
            trials: See `next`, as the rest.
            launches: Likewise.
            switching: Likewise.
            aside: Likewise.

        Returns:
            One number per launch, until nothing is left; `None` where the planner cannot say.
        """
        unjudged = self.planner.unjudged()
        if unjudged is None:
            return None
        known = {t.configuration.key for t in trials if t.state not in _UNJUDGED}
        known.update(aside)
        begun = [t for t in trials if t.state is TrialState.RUNNING]
        alone = {t.configuration for t in begun if _left_alone(t, launches) is not None}
        left = (*(t.configuration for t in begun), *self._baselines.values(), *unjudged)
        plans = self._launches.group(
            PlannedTrial(configuration, Purpose.SEARCH)
            for configuration in dict.fromkeys(left)
            if configuration.key not in known and configuration not in alone
        )
        return [1] * len(alone) + self._anchors.sizes(plans, switching)


def _left_alone(trial: Trial, launches: Sequence[Launch]) -> LaunchPlan | None:
    """A launch of its own for a trial that a failed launch left; `None` where none did.

    A server that is started for many settings needs more memory than any one of them, so one that
    failed, in its start or later, blames none: what it left is started one by one.
    """
    for launch in launches:
        failure = launch.failure
        if launch.state is not LaunchState.FAILED or failure is None:
            continue
        if failure.fault == "configuration" and trial.number in launch.trials:
            return LaunchPlan((PlannedTrial(trial.configuration, trial.purpose),))
    return None
