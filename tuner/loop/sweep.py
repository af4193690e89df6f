"""The tuning loop. Start reading at `Sweep.run`.

Real, simulated and replayed servers share this loop. Every fact is stored before the loop uses it,
so a kill loses at most the running measurement. `Launcher` (`launching`) runs one launch, `Judge`
(`judging`) measures and judges its trials, `NextLaunch` (`next_launch`) chooses what to launch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from results.records import Failure, LaunchState, Purpose, TrialState
from runners.base import remarks_of
from tuner.formatting import counted, shorten
from tuner.hot_switch.switching import read_switching
from tuner.loop.launching import StudyFaultError
from tuner.loop.leftovers import end_leftovers
from tuner.planners.base import LaunchPlan, Observation, Stop
from tuner.verdict.scores import Leaderboard, comparable
from tuner.verdict.verdict import missing_baselines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from results.records import Launch, Trial
    from results.store import Store
    from results.studies import Stopped, StoredStudy
    from runners.base import Runner
    from search_spaces.configuration import Configuration
    from search_spaces.metrics import Metric
    from tuner.hot_switch.switching import Switching
    from tuner.loop.equivalent_configurations import EquivalentConfigurations
    from tuner.loop.launching import Launcher
    from tuner.loop.next_launch import NextLaunch
    from tuner.loop.optuna_mirror import Mirror
    from tuner.loop.progress import Progress
    from tuner.planners.base import Planner

MAX_STORED_INACTIVE = 256
"""Maximum number of inactive points that one launch adds as stored trials."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Why a sweep ended."""

    stopped: Stopped
    reason: str


class Sweep:
    """Runs one study to its target.

    Args:
        stored: The study.
        store: Database of the study.
        runner: Its clock measures the budget in hours.
        next_launch: Chooses the next launch.
        planner: Planner of `next_launch`; gets every judged trial.
        fallback_planner: Makes the planner for the case that hot switching is turned off and the
            budget then no longer covers every point. `None`: keep the planner.
        launcher: Runs launch plans.
        equivalent: Finds points that need no launch. `None`: every point needs one.
        baselines: Baselines by name.
        metric: Metric that ranks configurations.
        compare_answers: Whether degenerate answers are invalid if a baseline has none.
        progress: Prints each step.
        mirror: Optuna's tables. `None`: do not write them.
        shielded: Makes sections that an interrupt does not cut short.
    """

    def __init__(
        self,
        *,
        stored: StoredStudy,
        store: Store,
        runner: Runner,
        next_launch: NextLaunch,
        planner: Planner,
        fallback_planner: Callable[[], Planner] | None = None,
        launcher: Launcher,
        equivalent: EquivalentConfigurations | None = None,
        baselines: Mapping[str, Configuration],
        metric: Metric,
        compare_answers: bool = True,
        progress: Progress,
        mirror: Mirror | None,
        shielded: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._stored = stored
        self._store = store
        self._runner = runner
        self._next_launch = next_launch
        self._planner = planner
        self._fallback_planner = fallback_planner
        self._launcher = launcher
        self._equivalent = equivalent
        self._baselines = baselines
        self._metric = metric
        self._compare_answers = compare_answers
        self._progress = progress
        self._mirror = mirror
        self._shielded = shielded
        self._observed: set[int] = set()
        self._printed: set[str] = set()
        self._unstored: dict[str, Configuration] = {}
        """Inactive points that are not stored, by their keys."""

    def run(self) -> Outcome:
        """Run the study to its target. Store and return why it stopped; Ctrl-C is one reason."""
        try:
            outcome = self._loop()
        except KeyboardInterrupt:
            outcome = Outcome(
                "interrupted", f"by a signal; `tuner resume --study {self._stored.name}` continues"
            )
        except StudyFaultError as fault:
            outcome = Outcome("fault", str(fault))
        with self._shielded():
            # An interrupt can arrive just before the shielded end of a launch.
            for _ in end_leftovers(self._store, self._stored.id, self._runner):
                pass
            if outcome.stopped not in {"interrupted", "fault"}:
                self._fail_unfinished_trials(outcome)
            self._store.stop_study(self._stored.id, outcome.stopped, outcome.reason)
            if self._mirror is not None:
                self._mirror.show(self._leaderboard())
        return outcome

    def _loop(self) -> Outcome:
        """Repeat these steps until the study has reached its target.

        1. Read the stored trials, pass new results to the planner and compute the leaderboard.
        2. Check that a baseline is left to compare with.
        3. Store points as inactive that need no launch, as the logs of launches show.
        4. Read from the stored launches whether hot switching works in this study.
        5. Choose the next launch.
        6. Stop if every point has a result or the budget is used.
        7. Store the intent, launch, measure, judge, and store the results.
        """
        while True:
            leaderboard = self._observe()
            self._check_baselines(leaderboard)
            launches = self._store.launches(self._stored.id)
            if self._store_inactive_points(leaderboard, launches):
                leaderboard = self._observe()
            switching = read_switching(self._store, self._stored.id, leaderboard.trials, launches)
            plan, switching = self._choose(leaderboard, launches, switching)
            # Before the budget: the last launch of the budget can judge the last point.
            if isinstance(plan, Stop):
                count = sum(
                    t.state is TrialState.INACTIVE and not t.launches for t in leaderboard.trials
                )
                without = f", {count} of them without a launch" if count else ""
                return Outcome("exhausted", f"every point of the space has a result{without}")
            if (outcome := self._budget_used()) is not None:
                return outcome
            launch = self._launcher.intend(plan, leaderboard.trials, number=len(launches))
            if self._mirror is not None:
                self._mirror.show(self._leaderboard())
            self._progress.launching(launch, plan, self._eta_s(leaderboard, launches, switching))
            began = self._runner.now()
            try:
                self._launcher.carry_out(launch, plan)
            finally:
                with self._shielded():
                    self._store.add_work(self._stored.id, self._runner.now() - began)

    def _observe(self) -> Leaderboard:
        """Pass new results to the planner and the mirror, and return the leaderboard."""
        trials = self._store.trials(self._stored.id)
        leaderboard = self._leaderboard(trials)
        self._print_invalidated(trials, leaderboard)
        if self._mirror is not None:
            self._mirror.show(leaderboard)
        for trial in leaderboard.trials:
            # A failed trial says nothing about its configuration. The planner may propose the
            # configuration again after the cause is fixed.
            unjudged = trial.state in {TrialState.RUNNING, TrialState.FAILED}
            if trial.number in self._observed or unjudged:
                continue
            if comparable(trial) and leaderboard.reference is None:
                continue  # its score and state are unknown until every baseline is judged
            self._observed.add(trial.number)
            score = leaderboard.score(trial)
            self._planner.observe(Observation(trial.configuration, trial.state, score))
        return leaderboard

    def _leaderboard(self, trials: Sequence[Trial] | None = None) -> Leaderboard:
        return Leaderboard.of(
            self._store.trials(self._stored.id) if trials is None else trials,
            self._baselines,
            self._metric,
            compare_answers=self._compare_answers,
        )

    def _print_invalidated(self, trials: Sequence[Trial], leaderboard: Leaderboard) -> None:
        """Print the trials that became invalid by comparison with a baseline.

        `_check_baselines` prints the baselines among them.
        """
        baselines = {t.number for t in leaderboard.baselines.values() if t is not None}
        for stored, trial in zip(trials, leaderboard.trials, strict=True):
            if stored.state is trial.state or trial.number in baselines or trial.failure is None:
                continue
            self._print_once(
                f"warning: trial {trial.number} is {trial.state}: {trial.failure.message}"
            )

    def _print_once(self, line: str) -> None:
        if line not in self._printed:
            self._printed.add(line)
            self._progress.message(line)

    def _check_baselines(self, leaderboard: Leaderboard) -> None:
        """Print which baselines are missing from the comparison.

        Raises:
            StudyFaultError: No baseline is left, so no gain can be computed.
        """
        if not leaderboard.baselines_are_judged:
            return
        missing = missing_baselines(leaderboard)
        if leaderboard.reference is None:
            raise StudyFaultError(
                f"no baseline is left to compare with: "
                f"{'; '.join(missing) or 'this study has no baseline'}. Fix the cause, then "
                "create another study: `tuner sweep --study FILE --name NAME`"
            )
        for sentence in missing:
            self._print_once(f"warning: {sentence}; the other baselines are used")

    def _store_inactive_points(
        self, leaderboard: Leaderboard, launches: tuple[Launch, ...]
    ) -> bool:
        """Store points as inactive that need no launch; return whether there are any."""
        if self._equivalent is None or not self._equivalent.learn(launches):
            return False
        unfinished = {
            trial.configuration: trial.number
            for trial in leaderboard.trials
            if trial.state is TrialState.RUNNING
        }
        count, last = 0, None
        for point, failure in self._equivalent.inactive(leaderboard.trials):
            count, last = count + 1, failure
            with self._shielded():
                if (number := unfinished.get(point)) is not None:
                    self._store.finish_trial(
                        self._stored.id, number, TrialState.INACTIVE, failure=failure
                    )
                elif count <= MAX_STORED_INACTIVE:
                    self._store.set_aside(self._stored.id, point, Purpose.SEARCH, failure)
                else:
                    self._unstored[point.key] = point
                    self._planner.observe(Observation(point, TrialState.INACTIVE, None))
        if last is not None:
            verb = "is" if count == 1 else "are"
            self._progress.message(
                f"{counted(count, 'point')} {verb} inactive, {shorten(last.message)}"
            )
        return count > 0

    def _choose(
        self, leaderboard: Leaderboard, launches: tuple[Launch, ...], switching: Switching
    ) -> tuple[LaunchPlan | Stop, Switching]:
        """Choose the next launch, without hot switching if it does not work in this study."""
        for remark in remarks_of(self._runner):
            self._print_once(f"note: {remark}")
        if switching.gave_up is not None:
            self._disable_hot_switch(switching.gave_up)
        plan = self._next_launch.next(
            leaderboard.trials, launches, switching, unstored=self._unstored
        )
        missing = switching.plugin_missing
        if isinstance(plan, LaunchPlan) and plan.settings and missing is not None:
            # A server without the plugin cannot be switched, so a shared launch would fail.
            switching = replace(switching, gave_up=missing)
            self._disable_hot_switch(missing)
            plan = self._next_launch.next(
                leaderboard.trials, launches, switching, unstored=self._unstored
            )
        return plan, switching

    def _disable_hot_switch(self, reason: str) -> None:
        """Launch every setting separately, with the fallback planner if the budget requires it."""
        self._print_once(f"hot switching is off, every setting gets its own launch: {reason}")
        make_planner, self._fallback_planner = self._fallback_planner, None
        if make_planner is None or self._stored.budget_launches is None:
            return
        self._next_launch.disable_hot_switch()
        # Includes unfinished trials, which the planner has not observed.
        needed = self._planner.launches_left()
        affordable = self._stored.budget_launches - self._store.launches_spent(self._stored.id)
        if needed is None or needed <= affordable:
            return
        self._planner = self._next_launch.planner = make_planner()
        for point in self._unstored.values():
            self._planner.observe(Observation(point, TrialState.INACTIVE, None))
        self._observed.clear()
        self._observe()
        self._progress.message(
            f"{needed} launches are needed for the remaining points, but the budget allows "
            f"{affordable}; switching to TPE"
        )

    def _budget_used(self) -> Outcome | None:
        stored = self._store.study(self._stored.name)
        spent = self._store.launches_spent(stored.id)
        if stored.budget_launches is not None and spent >= stored.budget_launches:
            return Outcome("budget", f"{spent} of {stored.budget_launches} launches are used")
        if stored.budget_hours is not None and stored.work_s >= stored.budget_hours * 3600:
            return Outcome("budget", f"the budget of {stored.budget_hours:g} hours is used")
        return None

    def _eta_s(
        self, leaderboard: Leaderboard, launches: tuple[Launch, ...], switching: Switching
    ) -> float | None:
        """Estimate the real seconds to the target; `None` before the first complete launch."""
        pace = pace_of(launches, leaderboard.trials)
        sizes = self._next_launch.remaining_sizes(
            leaderboard.trials, launches, switching, unstored=self._unstored
        )
        if pace is None or not sizes:
            return None
        seconds = pace.seconds(sizes)
        stored = self._store.study(self._stored.name)
        if stored.budget_launches is not None:
            affordable = stored.budget_launches - self._store.launches_spent(stored.id)
            # The planner's choice is unknown, so count that many launches of average size.
            seconds *= min(1.0, affordable / len(sizes))
        if stored.budget_hours is not None:
            seconds = min(seconds, max(0.0, stored.budget_hours * 3600 - stored.work_s))
        return seconds / self._runner.time_scale

    def _fail_unfinished_trials(self, outcome: Outcome) -> None:
        """Store unfinished trials of a finished study as failed. No resume will measure them."""
        for trial in self._store.unfinished(self._stored.id).trials:
            failure = Failure("not_measured", "load", "study", f"not measured: {outcome.reason}")
            self._store.finish_trial(
                self._stored.id, trial.number, TrialState.FAILED, failure=failure
            )


@dataclass(frozen=True, slots=True)
class Pace:
    """Mean times of the launches of a study, in seconds of the runner's clock.

    Attributes:
        start_s: Start-up of a server for one setting.
        switched_start_s: Start-up of a server for several settings.
        setting_s: Measurement of one setting, with its share of the server's stop.
    """

    start_s: float
    switched_start_s: float
    setting_s: float

    def seconds(self, sizes: Iterable[int]) -> float:
        """Total time of launches with these numbers of settings, reference runs included."""
        return sum(
            (self.switched_start_s if size > 1 else self.start_s) + size * self.setting_s
            for size in sizes
        )


def pace_of(launches: Sequence[Launch], trials: Sequence[Trial]) -> Pace | None:
    """Mean times of the complete launches of a study; `None` before the first one."""
    judged = Counter(trial.judged_in for trial in trials)
    by_number = {trial.number: trial for trial in trials}
    starts: dict[bool, list[float]] = {False: [], True: []}
    served, settings = 0.0, 0
    for launch in launches:
        if launch.state is not LaunchState.COMPLETE or launch.imported_from is not None:
            continue
        if launch.ready_s is None or launch.seconds is None:
            continue
        switched = bool(launch.intent.settings)
        first = by_number.get(launch.trials[0]) if launch.trials else None
        reference_runs = int(switched and first is not None and first.judged_in != launch.id)
        starts[switched].append(launch.ready_s)
        served += max(0.0, launch.seconds - launch.ready_s)
        settings += judged[launch.id] + reference_runs
    if not settings:
        return None
    one, several = starts[False] or starts[True], starts[True] or starts[False]
    return Pace(fmean(one), fmean(several), served / settings)
