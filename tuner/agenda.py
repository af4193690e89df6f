"""What comes next in a study: what a killed run left, the baselines, then the planner's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.records import LaunchState, Purpose, TrialState
from tuner.planners import LaunchPlan, PlannedTrial, Stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from results.records import Launch, Trial
    from search_spaces.configuration import Configuration
    from tuner.planners import LaunchBuilder, Planner
    from tuner.same_servers import SameServers


class Agenda:
    """Puts unfinished trials and baselines before the planner. Holds no state of its own.

    Args:
        baselines: By name, in the order in which they are measured.
        planner: Asked once nothing else is due.
        launches: Fills launches.
        same: Knows what tells most of a planner's choice; `None` asks nobody.
    """

    def __init__(
        self,
        baselines: Mapping[str, Configuration],
        planner: Planner,
        launches: LaunchBuilder,
        same: SameServers | None = None,
    ) -> None:
        self._baselines = baselines
        self._planner = planner
        self._launches = launches
        self._same = same

    def next(self, trials: Sequence[Trial], launches: Sequence[Launch]) -> LaunchPlan | Stop:
        """The next launch, given everything that is stored."""
        unfinished = [t for t in trials if t.state is TrialState.RUNNING]
        if unfinished:
            return self._unfinished(unfinished, launches)
        judged = {t.configuration.key for t in trials if t.state is not TrialState.FAILED}
        for configuration in self._baselines.values():
            if configuration.key not in judged:
                first = PlannedTrial(configuration, Purpose.BASELINE)
                return self._launches.plan(first, judged | self._baseline_keys())
        plan = self._planner.propose()
        if isinstance(plan, Stop) or self._same is None:
            return plan
        chosen = plan.trials[0].configuration
        before = self._same.before(chosen, judged)
        if before == chosen:
            return plan
        return self._launches.plan(PlannedTrial(before, Purpose.SEARCH), judged)

    def _baseline_keys(self) -> set[str]:
        return {configuration.key for configuration in self._baselines.values()}

    def _unfinished(self, trials: Sequence[Trial], launches: Sequence[Launch]) -> LaunchPlan:
        """Regroups trials that a launch left unjudged.

        A server that is started for many settings needs more memory than any one of them, so one
        that failed, in its start or later, blames none: what it left is started one by one.
        """
        alone = {
            number
            for launch in launches
            if launch.state is LaunchState.FAILED
            and launch.failure is not None
            and launch.failure.fault == "configuration"
            for number in launch.trials
        }
        first = trials[0]
        if first.number in alone:
            return LaunchPlan((PlannedTrial(first.configuration, first.purpose),))
        together = [t for t in trials if t.number not in alone]
        return self._launches.group(PlannedTrial(t.configuration, t.purpose) for t in together)[0]

    def launches_left(self, trials: Sequence[Trial]) -> int | None:
        """Launches until the planner stops by itself, as far as it can say."""
        left = self._planner.launches_left()
        if left is None:
            return None
        running = [
            PlannedTrial(t.configuration, t.purpose)
            for t in trials
            if t.state is TrialState.RUNNING
        ]
        return left + len(self._launches.group(running))
