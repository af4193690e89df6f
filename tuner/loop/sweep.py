"""The tuning loop: choose a launch, run it, store the result; and its estimate of the time left.

Real, simulated and replayed servers share this loop. Every fact is stored before the loop uses it,
so a kill loses at most the running measurement.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from results.records import Failure, LaunchState, Purpose, TrialState
from runners.base import remarks_of
from tuner.formatting import shorten
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


_REASONS: dict[Literal["exhausted", "converged"], str] = {
    "exhausted": "every point of the space has a result",
    "converged": "the planner expects no improvement from another launch",
}


MOST_SET_ASIDE = 256
"""Inactive points that are stored as trials: enough to be read, and few beside a large space."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Why a sweep ended."""

    stopped: Stopped
    reason: str


class Sweep:
    """Runs one study to its target.

    Args:
        stored: The study: budget, name.
        store: Where everything is.
        runner: Whose clock the budget's hours are counted on.
        next_launch: What comes next.
        planner: The agenda's planner, told of every judged trial.
        otherwise: Makes the planner that takes over where switching is given up and the budget no
            longer reaches every point; `None`: none does.
        launcher: Carries out launch plans.
        same: Knows which points need no launch; `None` where all of them do.
        baselines: By name.
        metric: What configurations are ranked by.
        compare_answers: Whether degenerate answers are invalid beside a clean baseline.
        progress: Told of every step.
        mirror: Optuna's tables; `None` where nobody will look at them.
        shielded: Sections that an interrupt may not tear.
    """

    def __init__(
        self,
        *,
        stored: StoredStudy,
        store: Store,
        runner: Runner,
        next_launch: NextLaunch,
        planner: Planner,
        otherwise: Callable[[], Planner] | None = None,
        launcher: Launcher,
        same: EquivalentConfigurations | None = None,
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
        self._otherwise = otherwise
        self._launcher = launcher
        self._same = same
        self._baselines = baselines
        self._metric = metric
        self._compare_answers = compare_answers
        self._progress = progress
        self._mirror = mirror
        self._shielded = shielded
        self._observed: set[int] = set()
        self._told: set[str] = set()
        self._unstored: dict[str, Configuration] = {}
        """Points that were set aside without being stored, by their keys."""

    def run(self) -> Outcome:
        """Runs to the target; stores and returns why it stopped. Ctrl-C is such a reason."""
        try:
            outcome = self._loop()
        except KeyboardInterrupt:
            outcome = Outcome(
                "interrupted", f"by a signal; `tuner resume --study {self._stored.name}` goes on"
            )
        except StudyFaultError as fault:
            outcome = Outcome("fault", str(fault))
        with self._shielded():
            # An interrupt can fall just before a launch's own shielded end.
            for _ in end_leftovers(self._store, self._stored.id, self._runner):
                pass
            if outcome.stopped not in {"interrupted", "fault"}:
                self._give_up_unfinished(outcome)
            self._store.stop_study(self._stored.id, outcome.stopped, outcome.reason)
            if self._mirror is not None:
                self._mirror.show(self._leaderboard())
        return outcome

    def _give_up_unfinished(self, outcome: Outcome) -> None:
        """Nobody will come back to a study that has reached its target."""
        for trial in self._store.unfinished(self._stored.id).trials:
            failure = Failure("not_measured", "load", "study", f"not measured: {outcome.reason}")
            self._store.finish_trial(
                self._stored.id, trial.number, TrialState.FAILED, failure=failure
            )

    def _loop(self) -> Outcome:
        while True:
            leaderboard = self._observe()
            self._check_baselines(leaderboard)
            launches = self._store.launches(self._stored.id)
            if self._set_aside(leaderboard, launches):
                leaderboard = self._observe()
            switching = read_switching(self._store, self._stored.id, leaderboard.trials, launches)
            self._tell(switching)
            if switching.gave_up is not None:
                self._reconsider()
            plan = self._next_launch.next(
                leaderboard.trials, launches, switching, aside=self._unstored
            )
            if isinstance(plan, LaunchPlan) and plan.settings and switching.silent is not None:
                switching = replace(switching, gave_up=switching.silent)
                self._tell(switching)
                self._reconsider()
                plan = self._next_launch.next(
                    leaderboard.trials, launches, switching, aside=self._unstored
                )
            # Before the budget: a study that has judged every point with its last launch is done.
            if isinstance(plan, Stop):
                return Outcome(plan.reason, _REASONS[plan.reason] + _aside(leaderboard))
            if (outcome := self._budget_spent()) is not None:
                return outcome
            launch = self._launcher.intend(plan, leaderboard.trials, number=len(launches))
            if self._mirror is not None:
                self._mirror.show(self._leaderboard())
            eta_s = self._eta_s(leaderboard, launches, switching)
            self._progress.launching(launch, plan, eta_s)
            began = self._runner.now()
            try:
                self._launcher.carry_out(launch, plan)
            finally:
                with self._shielded():
                    self._store.add_work(self._stored.id, self._runner.now() - began)

    def _tell(self, switching: Switching) -> None:
        """Once a run: what launches go without, and why."""
        found = [f"note: {remark}" for remark in remarks_of(self._runner)]
        if switching.gave_up is not None:
            found.append(
                f"hot switching is off, every setting gets its own launch: {switching.gave_up}"
            )
        for line in found:
            if line not in self._told:
                self._told.add(line)
                self._progress.message(line)

    def _check_baselines(self, leaderboard: Leaderboard) -> None:
        """Says once which baselines are missing from the comparison.

        Raises:
            StudyFaultError: None is left, so that nothing could be said of any gain.
        """
        if not leaderboard.baselines_are_judged:
            return
        missing = missing_baselines(leaderboard)
        if leaderboard.reference is None:
            raise StudyFaultError(
                f"no baseline is left to compare with: "
                f"{'; '.join(missing) or 'this study has no baseline'}. Correct the cause, then "
                "begin another study: `tuner sweep --study FILE --name NAME`"
            )
        for sentence in missing:
            if sentence not in self._told:
                self._told.add(sentence)
                self._progress.message(f"warning: {sentence}; the other baselines are used")

    def _reconsider(self) -> None:
        """Once switching is given up: what was to measure every point may not reach them all."""
        otherwise, self._otherwise = self._otherwise, None
        if otherwise is None or self._stored.budget_launches is None:
            return
        self._next_launch.fall_back()
        # Of what was begun and not judged the planner has not heard: it counts it.
        left = self._planner.launches_left()
        affordable = self._stored.budget_launches - self._store.launches_spent(self._stored.id)
        if left is None or left <= affordable:
            return
        self._planner = self._next_launch.planner = otherwise()
        for point in self._unstored.values():
            self._planner.observe(Observation(point, TrialState.INACTIVE, None))
        self._observed.clear()
        self._observe()
        self._progress.message(
            f"{left} launches are needed for the remaining points, but the budget allows "
            f"{affordable}; switching to TPE"
        )

    def _leaderboard(self, trials: Sequence[Trial] | None = None) -> Leaderboard:
        return Leaderboard.of(
            self._store.trials(self._stored.id) if trials is None else trials,
            self._baselines,
            self._metric,
            compare_answers=self._compare_answers,
        )

    def _observe(self) -> Leaderboard:
        """Tells the planner what it has not heard yet."""
        trials = self._store.trials(self._stored.id)
        leaderboard = self._leaderboard(trials)
        self._tell_rejudged(trials, leaderboard)
        if self._mirror is not None:
            self._mirror.show(leaderboard)
        for trial in leaderboard.trials:
            # A failed trial says nothing of its configuration: once what stopped the study is
            # mended, the planner may propose it again.
            unjudged = trial.state in {TrialState.RUNNING, TrialState.FAILED}
            if trial.number in self._observed or unjudged:
                continue
            if comparable(trial) and leaderboard.reference is None:
                continue  # score and state are known once every baseline is judged
            self._observed.add(trial.number)
            score = leaderboard.score(trial)
            self._planner.observe(Observation(trial.configuration, trial.state, score))
        return leaderboard

    def _tell_rejudged(self, trials: Sequence[Trial], leaderboard: Leaderboard) -> None:
        """Say once which trials a baseline has made invalid; `_check_baselines` names baselines."""
        baselines = {t.number for t in leaderboard.baselines.values() if t is not None}
        for stored, trial in zip(trials, leaderboard.trials, strict=True):
            if stored.state is trial.state or trial.number in baselines or trial.failure is None:
                continue
            line = f"warning: trial {trial.number} is {trial.state}: {trial.failure.message}"
            if line not in self._told:
                self._told.add(line)
                self._progress.message(line)

    def _set_aside(self, leaderboard: Leaderboard, launches: tuple[Launch, ...]) -> bool:
        """Stores as inactive what a launch has shown to be another point's server."""
        if self._same is None or not self._same.learn(launches):
            return False
        unfinished = {
            trial.configuration: trial.number
            for trial in leaderboard.trials
            if trial.state is TrialState.RUNNING
        }
        count, last = 0, None
        for point, failure in self._same.inactive(leaderboard.trials):
            count, last = count + 1, failure
            with self._shielded():
                if (number := unfinished.get(point)) is not None:
                    self._store.finish_trial(
                        self._stored.id, number, TrialState.INACTIVE, failure=failure
                    )
                elif count <= MOST_SET_ASIDE:
                    self._store.set_aside(self._stored.id, point, Purpose.SEARCH, failure)
                else:  # told to nobody but the planner
                    self._unstored[point.key] = point
                    self._planner.observe(Observation(point, TrialState.INACTIVE, None))
        if last is not None:
            what = "1 point is" if count == 1 else f"{count} points are"
            self._progress.message(f"{what} inactive, {shorten(last.message)}")
        return count > 0

    def _budget_spent(self) -> Outcome | None:
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
        """Real seconds until the target, by the study's launches; `None` before the first."""
        pace = pace_of(launches, leaderboard.trials)
        sizes = self._next_launch.sizes_left(
            leaderboard.trials, launches, switching, aside=self._unstored
        )
        if pace is None or not sizes:
            return None
        seconds = pace.seconds(sizes)
        stored = self._store.study(self._stored.name)
        if stored.budget_launches is not None:
            affordable = stored.budget_launches - self._store.launches_spent(stored.id)
            # Which of them a planner will choose is not known: as many of the mean one.
            seconds *= min(1.0, affordable / len(sizes))
        if stored.budget_hours is not None:
            seconds = min(seconds, max(0.0, stored.budget_hours * 3600 - stored.work_s))
        return seconds / self._runner.time_scale


def _aside(leaderboard: Leaderboard) -> str:
    """What is said of points that needed no launch to be judged."""
    count = sum(t.state is TrialState.INACTIVE and not t.launches for t in leaderboard.trials)
    return f", {count} of them without a launch" if count else ""


@dataclass(frozen=True, slots=True)
class Pace:
    """What launches of a study take, in seconds of its clock.

    Attributes:
        start_s: Until a server of one setting is ready.
        switched_start_s: Until one is that is prepared for several.
        setting_s: For each setting that is measured, the server's end included.
    """

    start_s: float
    switched_start_s: float
    setting_s: float

    def seconds(self, sizes: Iterable[int]) -> float:
        """Of launches that measure so many settings each, an anchor among them."""
        return sum(
            (self.switched_start_s if size > 1 else self.start_s) + size * self.setting_s
            for size in sizes
        )


def pace_of(launches: Sequence[Launch], trials: Sequence[Trial]) -> Pace | None:
    """Of the launches of a study that came to their end by themselves; `None` before the first."""
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
        anchors = int(switched and first is not None and first.judged_in != launch.id)
        starts[switched].append(launch.ready_s)
        served += max(0.0, launch.seconds - launch.ready_s)
        settings += judged[launch.id] + anchors
    if not settings:
        return None
    alone, many = starts[False] or starts[True], starts[True] or starts[False]
    return Pace(fmean(alone), fmean(many), served / settings)
