"""Choice of the next launch: unfinished trials, then baselines, then the planner's proposal."""

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


class NextLaunch:
    """Chooses the next launch from the stored trials and launches.

    Args:
        baselines: Baselines by name, in the order of measurement.
        planner: Proposes launches after the baselines.
        launches: Groups configurations into launches.
        anchors: Adds the reference run to a shared launch, or makes it a separate launch.
        equivalent: Replaces a proposal by the configuration without NCCL variables while it is
            unknown whether NCCL handles decoding. `None`: keep every proposal.
    """

    def __init__(
        self,
        baselines: Mapping[str, Configuration],
        planner: Planner,
        launches: LaunchBuilder,
        anchors: Anchors,
        equivalent: EquivalentConfigurations | None = None,
    ) -> None:
        self._baselines = baselines
        self.planner = planner
        self._launches = launches
        self._anchors = anchors
        self._equivalent = equivalent

    def next(
        self,
        trials: Sequence[Trial],
        launches: Sequence[Launch],
        switching: Switching,
        *,
        unstored: Collection[str] = (),
    ) -> LaunchPlan | Stop:
        """Choose the next launch.

        Args:
            trials: All stored trials.
            launches: All stored launches.
            switching: State of hot switching in the study.
            unstored: Keys of inactive points that are not stored.
        """
        if switching.gave_up is not None:
            self.disable_hot_switch()
        judged = {t.configuration.key for t in trials if t.state is not TrialState.FAILED}
        judged.update(unstored)
        unfinished = [t for t in trials if t.state is TrialState.RUNNING]
        if unfinished:
            if (separate := _separate_plan(unfinished[0], launches)) is not None:
                return separate
            plan = self._launches.group(
                PlannedTrial(t.configuration, t.purpose)
                for t in unfinished
                if _separate_plan(t, launches) is None
            )[0]
            return self._anchors.secured(plan, switching, judged, elsewhere=False)
        for configuration in self._baselines.values():
            if configuration.key not in judged:
                first = PlannedTrial(configuration, Purpose.BASELINE)
                known = judged | {baseline.key for baseline in self._baselines.values()}
                plan = self._launches.plan(first, known)
                return self._anchors.secured(plan, switching, known)
        proposed = self.planner.propose()
        if isinstance(proposed, Stop):
            return proposed
        if self._equivalent is not None:
            point = proposed.trials[0].configuration
            first_point = self._equivalent.measured_first(point, judged)
            if first_point != point:
                proposed = self._launches.plan(PlannedTrial(first_point, Purpose.SEARCH), judged)
        return self._anchors.secured(proposed, switching, judged)

    def disable_hot_switch(self) -> None:
        """Launch every setting separately from now on."""
        self._launches.disable_hot_switch()

    def remaining_sizes(
        self,
        trials: Sequence[Trial],
        launches: Sequence[Launch],
        switching: Switching,
        *,
        unstored: Collection[str] = (),
    ) -> list[int] | None:
        """Number of settings of each remaining launch, reference runs included.

        Returns:
            One number per launch; `None` if the planner cannot list its remaining points.
        """
        unjudged = self.planner.unjudged()
        if unjudged is None:
            return None
        judged = {
            t.configuration.key
            for t in trials
            if t.state not in {TrialState.RUNNING, TrialState.FAILED}
        }
        judged.update(unstored)
        unfinished = [t for t in trials if t.state is TrialState.RUNNING]
        separate = {t.configuration for t in unfinished if _separate_plan(t, launches) is not None}
        remaining = (
            *(t.configuration for t in unfinished),
            *self._baselines.values(),
            *unjudged,
        )
        plans = self._launches.group(
            PlannedTrial(configuration, Purpose.SEARCH)
            for configuration in dict.fromkeys(remaining)
            if configuration.key not in judged and configuration not in separate
        )
        return [1] * len(separate) + self._anchors.sizes(plans, switching)


def _separate_plan(trial: Trial, launches: Sequence[Launch]) -> LaunchPlan | None:
    """A separate launch for a trial of a failed shared launch; `None` if no such launch failed.

    A server for many settings needs more memory than a server for one of them. Its failure
    therefore does not blame a single setting, and each of its settings is launched separately.
    """
    for launch in launches:
        failure = launch.failure
        if launch.state is not LaunchState.FAILED or failure is None:
            continue
        if failure.fault == "configuration" and trial.number in launch.trials:
            return LaunchPlan((PlannedTrial(trial.configuration, trial.purpose),))
    return None
