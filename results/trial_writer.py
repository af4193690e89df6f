"""Write measurements and the final states of trials."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, insert, select, update

from results import rows, tables
from results.connection import Connected, insert_row, lock_study, next_number, row_id
from results.errors import StoreError
from results.records import TrialState

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from results.records import Failure, Measurement, Purpose, Resolved
    from search_spaces.configuration import Configuration

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
