"""Run one launch plan: store the intent, start, measure, judge, stop, store the results."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.records import (
    KILLED,
    LOSING_FAULTS,
    Failure,
    Launch,
    LaunchIntent,
    LaunchState,
    ProcessIdentity,
    Purpose,
    Trial,
    TrialState,
)
from runners.base import RunnerError
from runners.sglang.command import redacted
from tuner.hot_switch.switch_faults import ANCHOR_DISTURBED
from tuner.loop.failure_policy import consequences_of, killed_again
from tuner.loop.judging import Judge
from tuner.loop.leftovers import log_digest
from tuner.planners.base import PlannedTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from results.records import Machine
    from results.store import Store
    from results.studies import StoredStudy
    from runners.base import LaunchCommand, Runner, Session
    from search_spaces.workload import Workload
    from tuner.loop.progress import Progress
    from tuner.planners.base import LaunchPlan


class StudyFaultError(Exception):
    """The study cannot continue, because every further launch would be wasted."""


@dataclass(frozen=True, slots=True)
class _Result:
    """End of a launch.

    Attributes:
        state: State of the launch.
        failure: Why it failed.
        stop: Why the study stops; `None`: it continues.
        pause_s: Seconds to wait before the next launch.
    """

    state: LaunchState
    failure: Failure | None = None
    stop: str | None = None
    pause_s: float = 0.0


class Launcher:
    """Runs the launch plans of one study.

    Args:
        stored: The study.
        store: Database of the study; gets each fact before the next step.
        runner: Starts servers.
        workload: Operating points at which each setting is measured.
        limits: Upper bounds of a feasible trial, by metric.
        progress: Prints each step.
        log_dir: Folder of the server logs.
        shielded: Makes sections that an interrupt does not cut short.
        machine: Machine of the servers.
        announce: Gets the mark of a launch before its server starts.
    """

    def __init__(
        self,
        *,
        stored: StoredStudy,
        store: Store,
        runner: Runner,
        workload: Workload,
        limits: Mapping[str, float],
        progress: Progress,
        log_dir: Path,
        shielded: Callable[[], AbstractContextManager[None]],
        machine: Machine | None = None,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._stored = stored
        self._store = store
        self._runner = runner
        self._judge = Judge(
            stored=stored,
            store=store,
            workload=workload,
            limits=limits,
            progress=progress,
            shielded=shielded,
        )
        self._progress = progress
        self._log_dir = log_dir
        self._shielded = shielded
        self._machine = machine
        self._announce = announce
        self._version = stored.sglang_version
        self._host_faults = 0
        self.running: ProcessIdentity | None = None
        """The running server, for an immediate stop. Set before its process exists (pid 0, found
        by its mark) and until its end is proved."""

    def intend(self, plan: LaunchPlan, trials: Sequence[Trial], *, number: int) -> Launch:
        """Store the intent of a launch before anything starts.

        Args:
            plan: The launch.
            trials: All stored trials. Unfinished trials of the plan keep their numbers.
            number: Number of the launch, for the name of its log.
        """
        unfinished = {
            t.configuration.key: t.number for t in trials if t.state is TrialState.RUNNING
        }
        mark = uuid.uuid4().hex
        intent = LaunchIntent(
            configuration=plan.trials[0].configuration,
            settings=plan.settings,
            mark=mark,
            # Includes the mark, because two databases in one folder can have studies of one name.
            log=str(self._log_dir / f"launch-{number:04d}-{mark[:8]}.log"),
        )
        with self._shielded():
            return self._store.add_launch(
                self._stored.id,
                intent,
                [
                    *([] if plan.anchor is None else [plan.anchor.trial]),
                    *(
                        unfinished.get(t.configuration.key, (t.configuration, t.purpose))
                        for t in plan.trials
                    ),
                ],
                self._machine,
            )

    def carry_out(self, launch: Launch, plan: LaunchPlan) -> None:
        """Run an intended launch and store how it ended.

        Raises:
            StudyFaultError: The study must stop; the launch is stored.
            KeyboardInterrupt: The server is stopped and the launch is stored as lost.
        """
        began = self._runner.now()
        self._announce(launch.intent.mark)
        self.running = ProcessIdentity(0, 0.0, launch.intent.mark, 0)
        result = _Result(LaunchState.LOST)
        try:
            result = self._serve(launch, plan)
        except RunnerError as error:
            # Only a failed stop raises here. A process of the server is left and would disturb the
            # next measurement.
            result = _Result(
                LaunchState.FAILED,
                error.failure,
                f"the server of launch {launch.id} could not be stopped "
                f"({error.failure.message}); end it, then run "
                f"`tuner resume --study {self._stored.name}`",
            )
        finally:
            with self._shielded():
                if result.state is LaunchState.LOST:
                    # An interrupt can arrive after the process exists and before the runner can
                    # stop it.
                    self._runner.end_leftover(self.running)
                self.running = None
                self._store.finish_launch(
                    self._stored.id,
                    launch.id,
                    result.state,
                    self._runner.now() - began,
                    result.failure,
                    log_digest=log_digest(launch),
                )
        if result.failure is not None:
            self._progress.launch_failed(launch, result.failure)
        if result.stop is not None:
            raise StudyFaultError(result.stop)
        if result.pause_s:
            self._progress.message(f"waiting {result.pause_s:g} s before the retry")
            self._runner.wait(result.pause_s)

    def _serve(self, launch: Launch, plan: LaunchPlan) -> _Result:
        try:
            session = self._start(launch)
        except RunnerError as error:
            if error.failure.phase == "stop":
                raise
            return self._fail(launch, _numbered(launch, plan), error.failure)
        try:
            return self._measure(session, launch, plan)
        finally:
            with self._shielded():
                session.close()

    def _start(self, launch: Launch) -> Session:
        def on_process(process: ProcessIdentity, command: LaunchCommand) -> None:
            self.running = process
            stored = redacted(command)
            with self._shielded():
                self._store.set_process(
                    self._stored.id, launch.id, process, stored.argv, _environment(stored)
                )

        return self._runner.start(launch.intent, on_process, self._progress.starting)

    def _measure(self, session: Session, launch: Launch, plan: LaunchPlan) -> _Result:
        version = session.resolved.sglang_version
        with self._shielded():
            self._store.launch_ready(
                self._stored.id,
                launch.id,
                session.ready_s,
                session.phases,
                version,
                environment=session.resolved.environment,
            )
        if self._version not in {None, version}:
            return _Result(
                LaunchState.FAILED,
                Failure("version_changed", "ready", "study", f"SGLang is now {version}"),
                f"this study was measured with SGLang {self._version}, and the server now is "
                f"{version}: results of both cannot be compared. Install {self._version}, or run "
                f"`tuner resume --study {self._stored.name} --fork NEW`",
            )
        self._version = version
        numbered = _numbered(launch, plan)
        if plan.anchor is not None:
            try:
                unfaithful = self._judge.check(session, launch, plan.anchor)
            except RunnerError as error:
                repeated = PlannedTrial(plan.anchor.configuration, Purpose.ANCHOR)
                reference = [(plan.anchor.trial, repeated)]
                return self._fail(launch, reference, error.failure, judged=False)
            if unfaithful is not None:
                return _Result(LaunchState.FAILED, unfaithful)
        for number, planned in numbered:
            try:
                self._judge.measure(session, launch, number, planned)
            except RunnerError as error:
                return self._fail(launch, [(number, planned)], error.failure)
        self._host_faults = 0
        return _Result(LaunchState.COMPLETE)

    def _fail(
        self,
        launch: Launch,
        affected: Sequence[tuple[int, PlannedTrial]],
        failure: Failure,
        *,
        judged: bool = True,
    ) -> _Result:
        """Store the consequences of a failure for the affected trials.

        Args:
            launch: The failed launch.
            affected: Affected trials with their numbers.
            failure: Why the launch failed.
            judged: Whether the failure judges the trials. If not, another launch measures them.
        """
        # A disturbed reference run turns hot switching off before it counts as a host fault.
        disturbed = failure.kind == ANCHOR_DISTURBED
        if failure.kind in KILLED:
            failure = killed_again(
                failure,
                launch,
                [number for number, _ in affected],
                self._store.launches(self._stored.id),
                {t.number: t for t in self._store.trials(self._stored.id)},
            )
        found = consequences_of(
            failure,
            study=self._stored.name,
            log=launch.intent.log,
            switched=bool(launch.intent.settings),
            is_reference=_is_reference(affected[0][1]),
            host_faults=0 if disturbed else self._host_faults,
        )
        if not disturbed:
            lost = found.failure.fault in LOSING_FAULTS
            self._host_faults = self._host_faults + 1 if lost else 0
        if found.trials is not None and judged:
            for number, planned in affected:
                trial = Trial(
                    number,
                    planned.purpose,
                    found.trials,
                    planned.configuration,
                    failure=found.failure,
                )
                self._judge.finish(launch, trial)
        return _Result(found.launch, found.failure, found.stop, found.pause_s)


def _is_reference(planned: PlannedTrial) -> bool:
    """Whether this is the baseline that every gain is computed from."""
    return planned.purpose is Purpose.BASELINE and not planned.configuration.speculation.enabled


def _numbered(launch: Launch, plan: LaunchPlan) -> list[tuple[int, PlannedTrial]]:
    """Trials that the launch judges, with their numbers: all except the reference run."""
    numbers = launch.trials if plan.anchor is None else launch.trials[1:]
    return list(zip(numbers, plan.trials, strict=True))


def _environment(command: LaunchCommand) -> tuple[tuple[str, str | None], ...]:
    return (*command.env, *((name, None) for name in command.unset))
