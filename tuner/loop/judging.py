"""Measure and judge the trials of one launch. Every window is stored when it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import Failure, Purpose, Trial, TrialState
from runners.base import RunnerError, differences, switch
from search_spaces.configuration import largest
from tuner.hot_switch.faithful import compare
from tuner.hot_switch.one_server import State, compare_states
from tuner.hot_switch.switch_faults import (
    ANCHOR_DISTURBED,
    NOT_COMPARED,
    NOT_IN_FORCE,
    UNFAITHFUL,
    unfaithful,
)
from tuner.hot_switch.switching import checked, have_gpu
from tuner.loop.same_load import SameLoad
from tuner.verdict.scores import has_stalled, judge, was_disturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from results.records import Launch, Measurement, Resolved
    from results.store import Store
    from results.studies import StoredStudy
    from runners.base import Session
    from search_spaces.configuration import Configuration
    from search_spaces.workload import OperatingPoint, Workload
    from tuner.loop.progress import Progress
    from tuner.planners.base import Anchor, PlannedTrial


class Judge:
    """Measures and judges the trials of a study.

    Args:
        stored: The study.
        store: Database of the study; gets each window and each result.
        workload: Operating points at which each setting is measured.
        limits: Upper bounds of a feasible trial, by metric.
        progress: Prints each step.
        shielded: Makes sections that an interrupt does not cut short.
    """

    def __init__(
        self,
        *,
        stored: StoredStudy,
        store: Store,
        workload: Workload,
        limits: Mapping[str, float],
        progress: Progress,
        shielded: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._stored = stored
        self._store = store
        self._workload = workload
        self._limits = limits
        self._progress = progress
        self._shielded = shielded
        self._same_load = SameLoad(stored, store)
        self._references: dict[int, list[State]] = {}

    def measure(self, session: Session, launch: Launch, number: int, planned: PlannedTrial) -> None:
        """Measure a trial at every operating point and judge it.

        Raises:
            RunnerError: The server or its load failed. Or a switched server did not run this
                setting, differs from a separate launch of it, or could not be compared. The trial
                stays unjudged.
        """
        asked = planned.configuration
        switched = bool(launch.intent.settings)
        if switched:
            self._require_reference(launch, asked)
        resolved = switch(session, asked.setting) if switched else session.resolved
        if switched:
            _require_in_force(_drafts_otherwise(asked, resolved))
        measurements = []
        for point in self._workload.points:
            measurements.append(self._undisturbed(session, launch, number, planned.purpose, point))
            if switched:
                _require_in_force(_said_not_in_force(measurements[-1]))
        if switched:
            self._compare_with_references(launch, asked, measurements)
        state, failure = judge(measurements, self._limits)
        if (ignored := _ignored(asked, resolved)) is not None:
            state, failure = TrialState.INACTIVE, ignored
        trial = Trial(
            number,
            planned.purpose,
            state,
            asked,
            resolved.configuration,
            failure,
            tuple(measurements),
            (launch.id,),
        )
        self.finish(launch, trial, resolved)

    def _require_reference(self, launch: Launch, asked: Configuration) -> None:
        """Raise if a switched setting has no checked setting to compare it with.

        The setting of the start needs none, because SGLang built it itself.
        """
        if asked.setting != largest(launch.intent.settings) and not self._checked_in(launch):
            why = "the setting of the start has no valid window"
            raise RunnerError(_not_compared(launch, asked, why))

    def _compare_with_references(
        self, launch: Launch, asked: Configuration, measurements: list[Measurement]
    ) -> None:
        """Compare a setting of a switched server with the checked settings of the same server."""
        if any(m.invalid for m in measurements):
            return  # neither scored nor a reference
        state = State(asked.setting, tuple(measurements))
        if asked.setting == largest(launch.intent.settings):
            self._checked_in(launch).append(state)
            return
        on_gpu = launch.machine is not None and bool(launch.machine.gpus)
        found = [compare_states(r, state, on_gpu=on_gpu) for r in self._checked_in(launch)]
        if differences := [result.difference for result in found if result.difference is not None]:
            why = unfaithful(launch, f"at {asked.setting} steps {differences[0]}")
            raise RunnerError(Failure(UNFAITHFUL, "load", "configuration", why))
        unknown = [result.unknown for result in found if result.unknown is not None]
        if len(unknown) == len(found):
            raise RunnerError(_not_compared(launch, asked, unknown[0]))

    def _checked_in(self, launch: Launch) -> list[State]:
        """Checked settings of a launch, with which its other settings are compared."""
        return self._references.setdefault(launch.id, [])

    def check(self, session: Session, launch: Launch, anchor: Anchor) -> Failure | None:
        """Repeat the reference run in a switched server and compare it with its separate launch.

        Returns:
            Why results of this server do not count; `None` if the check passed.

        Raises:
            RunnerError: The server or its load failed.
        """
        resolved = switch(session, anchor.configuration.setting)
        # Before the windows, because a resumed study compares stored windows.
        if (ignored := _ignored(anchor.configuration, resolved)) is not None:
            return Failure(UNFAITHFUL, "load", "configuration", ignored.message)
        trial = self._store.trial(self._stored.id, anchor.trial, samples=True)
        separate = next(
            known for known in self._store.launches(self._stored.id) if known.id == trial.judged_in
        )
        first = {window.point: window for window in trial.measurements}

        def disturbance(window: Measurement) -> str | None:
            if was_disturbed(window):
                return "; ".join(window.invalid)
            if window.point not in first:
                return None
            earlier = [first[window.point]]
            return compare(earlier, [window], on_gpu=have_gpu(launch, separate)).unexplained

        windows = []
        for point in self._workload.points:
            window = self._undisturbed(
                session, launch, anchor.trial, Purpose.ANCHOR, point, disturbance=disturbance
            )
            windows.append(window)
            if (what := disturbance(window)) is not None:
                reasons = f"the reference run was disturbed at {point.name}: {what}"
                raise RunnerError(Failure(ANCHOR_DISTURBED, "load", "host", reasons))
        found = checked(self._store, self._stored.id, launch, trial, separate)
        what = (
            f"reference run: trial {anchor.trial} of launch {separate.id}, measured again after a "
            "switch"
        )
        if found is None or not found.faithful:
            why = str(found) if found is not None else "windows are missing or disturbed"
            self._progress.message(f"  {what}: check failed: {why}")
            return Failure(UNFAITHFUL, "load", "configuration", unfaithful(launch, why))
        self._checked_in(launch).append(State(anchor.configuration.setting, tuple(windows)))
        self._progress.message(f"  {what}: check passed ({found})")
        return None

    def _undisturbed(
        self,
        session: Session,
        launch: Launch,
        number: int,
        purpose: Purpose,
        point: OperatingPoint,
        *,
        disturbance: Callable[[Measurement], object] = was_disturbed,
    ) -> Measurement:
        """Measure one operating point; repeat a disturbed window up to twice.

        A window costs seconds, a launch costs minutes.
        """

        def window(which: str = "") -> Measurement:
            self._progress.measuring(f"trial {number}, {point.name}{which}")
            return self._window(session, launch, number, purpose, point)

        measurement = window()
        if disturbance(measurement) or has_stalled(measurement):
            measurement = window(", once more")
            # A second stall has a cause in the server, for example long prefills.
            if disturbance(measurement):
                measurement = window(", a last time")
        return measurement

    def _window(
        self,
        session: Session,
        launch: Launch,
        number: int,
        purpose: Purpose,
        point: OperatingPoint,
    ) -> Measurement:
        """Measure one window and store it, also if it is invalid."""
        measurement = session.measure(point)
        self._same_load.check(measurement, number)
        with self._shielded():
            self._store.add_measurement(self._stored.id, number, launch.id, measurement, purpose)
        return measurement

    def finish(self, launch: Launch, trial: Trial, resolved: Resolved | None = None) -> None:
        """Store the result of a trial.

        Args:
            launch: Launch that judged the trial.
            trial: The trial with its result.
            resolved: Configuration that the server reported, if it served.
        """
        with self._shielded():
            self._store.finish_trial(
                self._stored.id,
                trial.number,
                trial.state,
                resolved,
                trial.failure,
                launch=launch.id,
            )
        self._progress.judged(trial)


def _not_compared(launch: Launch, asked: Configuration, why: str) -> Failure:
    """Failure of a setting that cannot be checked; it is launched separately."""
    message = f"{asked.setting} steps of launch {launch.id} cannot be checked: {why}"
    return Failure(NOT_COMPARED, "load", "configuration", message)


def _drafts_otherwise(asked: Configuration, resolved: Resolved) -> tuple[str, ...]:
    """Draft settings that differ from the requested setting. A switch does not change flags."""
    return differences(replace(asked, draft_tp=None, flags=(), env=()), resolved.configuration)


def _said_not_in_force(measurement: Measurement) -> tuple[str, ...]:
    return tuple(r for r in measurement.invalid if r.split(":", 1)[0] == NOT_IN_FORCE)


def _require_in_force(found: tuple[str, ...]) -> None:
    if found:
        raise RunnerError(Failure(NOT_IN_FORCE, "load", "configuration", "; ".join(found)))


def _ignored(asked: Configuration, resolved: Resolved) -> Failure | None:
    """Failure for ignored knobs; `None` if the server runs the requested configuration."""
    found = differences(asked, resolved.configuration)
    if not found:
        return None
    return Failure(
        "knob_ignored",
        "ready",
        "configuration",
        f"the server does not run the requested configuration: {'; '.join(found)}",
    )
