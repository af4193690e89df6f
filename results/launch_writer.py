"""Write launches, measurements and trials."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, insert, select, update

from results import rows, tables
from results.database import Connected, insert_row, lock_study, next_number, row_id
from results.errors import StoreError
from results.records import Launch, LaunchState, TrialState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from results.records import (
        Failure,
        LaunchIntent,
        Machine,
        Measurement,
        ProcessIdentity,
        Purpose,
        Resolved,
    )
    from search_spaces.configuration import Configuration


# Build statements once, since building one costs more than executing it.
_UPDATE: Final = (
    update(tables.launches)
    .where(tables.launches.c.study_id == bindparam("the_study"))
    .where(tables.launches.c.number == bindparam("the_number"))
    .where(tables.launches.c.state == LaunchState.RUNNING.value)
)
_SET_VERSION: Final = (
    update(tables.studies)
    .where(tables.studies.c.id == bindparam("the_study"))
    .where(tables.studies.c.sglang_version.is_(None))
)


class LaunchWriter(Connected):
    """Part of `results.store.Store` that writes launches and creates trials."""

    def add_launch(
        self,
        study_id: int,
        intent: LaunchIntent,
        trials: Sequence[int | tuple[Configuration, Purpose]],
        machine: Machine | None = None,
    ) -> Launch:
        """Store the intent of a launch, before any process is started.

        Args:
            study_id: The study.
            intent: The planned launch.
            trials: Trials in order. New trials are given as (configuration, purpose), get the next
                numbers and the state `running`. Existing trials (for example of a killed run) are
                given by number.
            machine: Machine of the launch.

        Returns:
            The launch in state `running`, with its trial numbers in the same order.

        Raises:
            StudyNotFound: The study does not exist.
            StoreError: A trial does not exist, or the mark is not unique.
        """
        now = time.time()
        with self._writing() as connection:
            lock_study(connection, study_id)
            number = next_number(connection, tables.launches, study_id)
            values = {
                **rows.intent_columns(intent),
                "study_id": study_id,
                "number": number,
                "state": LaunchState.RUNNING.value,
                "command": [],
                "environment": [],
                "phases": [],
                "created": now,
                "machine": machine and machine.to_dict(),
            }
            launch_id = insert_row(connection, tables.launches, values)
            following = next_number(connection, tables.trials, study_id)
            numbers: list[int] = []
            links = []
            for position, trial in enumerate(trials):
                if isinstance(trial, int):
                    numbers.append(trial)
                    trial_id = row_id(connection, tables.trials, study_id, trial)
                else:
                    numbers.append(following)
                    trial_id = _insert_trial(connection, study_id, following, trial, now)
                    following += 1
                links.append({"launch_id": launch_id, "trial_id": trial_id, "position": position})
            if links:
                connection.execute(insert(tables.launch_trials), links)
        state, told = LaunchState.RUNNING, tuple(numbers)
        return Launch(number, state, intent, trials=told, machine=machine, created=now)

    def set_process(
        self,
        study_id: int,
        launch: int,
        process: ProcessIdentity,
        command: Sequence[str] = (),
        environment: Sequence[tuple[str, str | None]] = (),
    ) -> None:
        """Store the process of a launch as soon as it exists.

        Args:
            study_id: The study.
            launch: Number of the launch.
            process: The process tree.
            command: The started argv.
            environment: Variables that were set (`None`: removed).
        """
        self._update_launch(
            study_id,
            launch,
            pid=process.pid,
            pid_started=process.started,
            port=process.port,
            host=process.host,
            command=list(command),
            environment=[list(pair) for pair in environment],
        )

    def launch_ready(
        self,
        study_id: int,
        launch: int,
        ready_s: float,
        phases: Sequence[tuple[str, float]],
        sglang_version: str,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Store that a launch is ready. The first ready launch sets the study's SGLang version.

        Args:
            study_id: The study.
            launch: Number of the launch.
            ready_s: Seconds from start to the first correct generation.
            phases: Seconds per start-up phase.
            sglang_version: Version reported by the server.
            environment: `Resolved.environment`.
        """
        self._update_launch(
            study_id,
            launch,
            ready_s=ready_s,
            phases=[list(phase) for phase in phases],
            sglang_version=sglang_version,
            effective_environment=dict(environment or {}),
        )

    def finish_launch(
        self,
        study_id: int,
        launch: int,
        state: LaunchState,
        seconds: float | None = None,
        failure: Failure | None = None,
        *,
        log_digest: str | None = None,
    ) -> None:
        """Store the end of a launch; final.

        Args:
            study_id: The study.
            launch: Number of the launch.
            state: Final state.
            seconds: Seconds from start to proof of the end; `None` if unknown.
            failure: Why it failed.
            log_digest: SHA-256 of its log.

        Raises:
            StoreError: The launch does not exist, or is not running.
        """
        if state is LaunchState.RUNNING:
            raise ValueError("a launch does not finish as running")
        self._update_launch(
            study_id,
            launch,
            state=state.value,
            seconds=seconds,
            log_digest=log_digest,
            **rows.failure_columns(failure),
        )

    def _update_launch(self, study_id: int, launch: int, **values: object) -> None:
        with self._writing() as connection:
            changed = connection.execute(
                _UPDATE, {**values, "the_study": study_id, "the_number": launch}
            )
            if not changed.rowcount:
                row_id(connection, tables.launches, study_id, launch)
                raise StoreError(f"launch {launch} of study {study_id} has already ended")
            if version := values.get("sglang_version"):
                connection.execute(_SET_VERSION, {"the_study": study_id, "sglang_version": version})


def _insert_trial(
    connection: Connection,
    study_id: int,
    number: int,
    trial: tuple[Configuration, Purpose],
    now: float,
) -> int:
    configuration, purpose = trial
    values = {
        "study_id": study_id,
        "number": number,
        "purpose": purpose.value,
        "state": TrialState.RUNNING.value,
        "configuration": configuration.to_dict(),
        "configuration_key": configuration.key,
        "created": now,
    }
    return insert_row(connection, tables.trials, values)


# Build statements once, since building one costs more than executing it.
_FINISH: Final = (
    update(tables.trials)
    .where(tables.trials.c.id == bindparam("the_trial"))
    .where(tables.trials.c.state == TrialState.RUNNING.value)
)
_LATEST: Final = (
    select(tables.launch_trials.c.launch_id)
    .where(tables.launch_trials.c.trial_id == bindparam("the_trial"))
    .order_by(tables.launch_trials.c.launch_id.desc())
    .limit(1)
)


class TrialWriter(Connected):
    """Part of `results.store.Store` that writes measurements and final states of trials."""

    def add_measurement(
        self, study_id: int, trial: int, launch: int, measurement: Measurement, purpose: Purpose
    ) -> None:
        """Store a measurement with its samples.

        Args:
            study_id: The study.
            trial: Number of the trial.
            launch: Number of the launch.
            measurement: The measurement.
            purpose: Purpose. A reference run or confirmation never becomes the result of a trial
                with another purpose.
        """
        with self._writing() as connection:
            values = {
                **rows.measurement_columns(measurement),
                "trial_id": row_id(connection, tables.trials, study_id, trial),
                "launch_id": row_id(connection, tables.launches, study_id, launch),
                "purpose": purpose.value,
            }
            measurement_id = insert_row(connection, tables.measurements, values)
            if measurement.samples:
                connection.execute(
                    insert(tables.requests),
                    [
                        {
                            **rows.sample_columns(sample),
                            "measurement_id": measurement_id,
                            "position": position,
                        }
                        for position, sample in enumerate(measurement.samples)
                    ],
                )

    def finish_trial(
        self,
        study_id: int,
        trial: int,
        state: TrialState,
        resolved: Resolved | None = None,
        failure: Failure | None = None,
        *,
        launch: int | None = None,
    ) -> None:
        """Store the final state of a trial.

        Args:
            study_id: The study.
            trial: Number of the trial.
            state: Final state.
            resolved: What its server reported; `None` if it was never ready.
            failure: Why it is not `complete`.
            launch: Number of the launch that judged it; defaults to its latest launch. If the state
                is a verdict, the launch counts against the budget, and its measurements become the
                trial's.

        Raises:
            StoreError: The trial does not exist, or is not running.
        """
        if state is TrialState.RUNNING:
            raise ValueError("a trial does not finish as running")
        with self._writing() as connection:
            trial_id = row_id(connection, tables.trials, study_id, trial)
            if launch is None:
                judged = _latest_launch(connection, trial_id)
            else:
                judged = row_id(connection, tables.launches, study_id, launch)
            values: dict[str, Any] = {
                **rows.failure_columns(failure),
                "state": state.value,
                "judged_launch_id": judged,
                "finished": time.time(),
            }
            if resolved is not None:
                values["resolved"] = resolved.configuration.to_dict()
                values["server_info"] = resolved.server_info
                values["time_scale"] = resolved.time_scale
            changed = connection.execute(_FINISH, {**values, "the_trial": trial_id})
            if not changed.rowcount:
                raise StoreError(f"trial {trial} of study {study_id} is already finished")

    def set_aside(
        self, study_id: int, configuration: Configuration, purpose: Purpose, failure: Failure
    ) -> int:
        """Store a trial as `inactive`, without a launch, and return its number.

        Args:
            study_id: The study.
            configuration: The configuration.
            purpose: Its purpose.
            failure: Why it is not launched.
        """
        now = time.time()
        with self._writing() as connection:
            lock_study(connection, study_id)
            number = next_number(connection, tables.trials, study_id)
            values = {
                **rows.failure_columns(failure),
                "study_id": study_id,
                "number": number,
                "purpose": purpose.value,
                "state": TrialState.INACTIVE.value,
                "configuration": configuration.to_dict(),
                "configuration_key": configuration.key,
                "created": now,
                "finished": now,
            }
            insert_row(connection, tables.trials, values)
        return number


def _latest_launch(connection: Connection, trial_id: int) -> int | None:
    return connection.execute(_LATEST, {"the_trial": trial_id}).scalar_one_or_none()
