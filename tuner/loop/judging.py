"""Measures the trials of one launch and judges each; every window is stored as it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import Failure, Purpose, Trial, TrialState
from runners.base import RunnerError, differences, switch
from search_spaces.configuration import largest
from tuner.hot_switch.faithful import compare
from tuner.hot_switch.one_server import State, held_against
from tuner.hot_switch.switch_faults import (
    ANCHOR_DISTURBED,
    NOT_COMPARED,
    NOT_IN_FORCE,
    UNFAITHFUL,
    unfaithful,
)
from tuner.hot_switch.switching import checked, have_gpu
from tuner.studies.identity import SameLoad
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
    """Brings trials to their ends.

    Args:
        stored: The study.
        store: Where each window and each judgement goes.
        workload: With which operating points each setting is measured.
        limits: Upper bounds that a feasible trial keeps, by metric.
        progress: Told of every step.
        shielded: Sections that an interrupt may not tear.
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
        """Measures a trial at every operating point, and judges it.

        Raises:
            RunnerError: The server or its load failed, or a switched server was not at this
                setting, is another server at it, or cannot be compared, which is no fault of the
                setting; the trial is as it was.
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
            self._hold_against_references(launch, asked, measurements)
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
        """Of a setting that the server was not started at: there is something to hold it against.

        What SGLang built itself needs none.
        """
        if asked.setting != largest(launch.intent.settings) and not self._known_of(launch):
            why = "the setting of the start has no valid window"
            raise RunnerError(_not_compared(launch, asked, why))

    def _hold_against_references(
        self, launch: Launch, asked: Configuration, measurements: list[Measurement]
    ) -> None:
        """Compares a setting of a switched server with those of it that are known to be right."""
        if any(m.invalid for m in measurements):
            return  # not scored, and no reference
        state = State(asked.setting, tuple(measurements))
        if asked.setting == largest(launch.intent.settings):
            self._known_of(launch).append(state)
            return
        on_gpu = launch.machine is not None and bool(launch.machine.gpus)
        found = [held_against(r, state, on_gpu=on_gpu) for r in self._known_of(launch)]
        if odds := [held.odds for held in found if held.odds is not None]:
            why = unfaithful(launch, f"at {asked.setting} steps {odds[0]}")
            raise RunnerError(Failure(UNFAITHFUL, "load", "configuration", why))
        untold = [held.untold for held in found if held.untold is not None]
        if len(untold) == len(found):
            raise RunnerError(_not_compared(launch, asked, untold[0]))

    def _known_of(self, launch: Launch) -> list[State]:
        """The states of a launch that others are held against."""
        return self._references.setdefault(launch.id, [])

    def check(self, session: Session, launch: Launch, anchor: Anchor) -> Failure | None:
        """Measures an anchor in a switched server, and compares it with its own launch.

        Returns:
            Why nothing of this server may be scored; `None` where it is faithful.

        Raises:
            RunnerError: The server or its load failed.
        """
        resolved = switch(session, anchor.configuration.setting)
        # Before its windows: who is killed behind them finds them, and compares them.
        if (ignored := _ignored(anchor.configuration, resolved)) is not None:
            return Failure(UNFAITHFUL, "load", "configuration", ignored.message)
        trial = self._store.trial(self._stored.id, anchor.trial, samples=True)
        own = next(
            known for known in self._store.launches(self._stored.id) if known.id == trial.judged_in
        )
        first = {window.point: window for window in trial.measurements}

        def disturbance(window: Measurement) -> str | None:
            if was_disturbed(window):
                return "; ".join(window.invalid)
            if window.point not in first:
                return None
            beside = [first[window.point]]
            return compare(beside, [window], on_gpu=have_gpu(launch, own)).unexplained

        windows = []
        for point in self._workload.points:
            window = self._undisturbed(
                session, launch, anchor.trial, Purpose.ANCHOR, point, disturbance=disturbance
            )
            windows.append(window)
            if (what := disturbance(window)) is not None:
                reasons = f"the reference run was disturbed at {point.name}: {what}"
                raise RunnerError(Failure(ANCHOR_DISTURBED, "load", "host", reasons))
        found = checked(self._store, self._stored.id, launch, trial, own)
        what = (
            f"reference run: trial {anchor.trial} of launch {own.id}, measured again after a switch"
        )
        if found is None or not found.faithful:
            why = str(found) if found is not None else "windows are missing or disturbed"
            self._progress.message(f"  {what}: check failed: {why}")
            return Failure(UNFAITHFUL, "load", "configuration", unfaithful(launch, why))
        self._known_of(launch).append(State(anchor.configuration.setting, tuple(windows)))
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
        """A measurement at one point; where it was disturbed, the one after it.

        A launch costs minutes, a window seconds.
        """

        def window(which: str = "") -> Measurement:
            self._progress.measuring(f"trial {number}, {point.name}{which}")
            return self._window(session, launch, number, purpose, point)

        measurement = window()
        if disturbance(measurement) or has_stalled(measurement):
            measurement = window(", once more")
            # A stream that stands still again does so by itself: by long prefills, say.
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
        """One measurement, stored whether it is believed or not."""
        measurement = session.measure(point)
        self._same_load.check(measurement, number)
        with self._shielded():
            self._store.add_measurement(self._stored.id, number, launch.id, measurement, purpose)
        return measurement

    def finish(self, launch: Launch, trial: Trial, resolved: Resolved | None = None) -> None:
        """Stores what became of a trial.

        Args:
            launch: The one that brought it to its end.
            trial: As it ended.
            resolved: What its server said it ran, where it served.
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
    """What of a switched server nobody can say whether it is faithful is measured by itself."""
    message = f"{asked.setting} steps of launch {launch.id} cannot be checked: {why}"
    return Failure(NOT_COMPARED, "load", "configuration", message)


def _drafts_otherwise(asked: Configuration, resolved: Resolved) -> tuple[str, ...]:
    """What a server drafts otherwise than it was switched to; its flags are no switch's doing."""
    return differences(replace(asked, draft_tp=None, flags=(), env=()), resolved.configuration)


def _said_not_in_force(measurement: Measurement) -> tuple[str, ...]:
    return tuple(r for r in measurement.invalid if r.split(":", 1)[0] == NOT_IN_FORCE)


def _require_in_force(found: tuple[str, ...]) -> None:
    if found:
        raise RunnerError(Failure(NOT_IN_FORCE, "load", "configuration", "; ".join(found)))


def _ignored(asked: Configuration, resolved: Resolved) -> Failure | None:
    """The knobs that the server did not take, as a failure; `None` if it runs what was asked."""
    found = differences(asked, resolved.configuration)
    if not found:
        return None
    return Failure(
        "knob_ignored",
        "ready",
        "configuration",
        f"the server does not run the requested configuration: {'; '.join(found)}",
    )
