"""What was measured in a launch, and what became of its trials."""

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

# Statements are built once: to build one costs more than to execute it.
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
    """The part of `results.store.Store` that writes measurements and the ends of trials."""

    def add_measurement(
        self, study_id: int, trial: int, launch: int, measurement: Measurement, purpose: Purpose
    ) -> None:
        """Stores a measurement with its samples.

        Args:
            study_id: The study.
            trial: Number of the trial that it is for.
            launch: Number of the launch in which it was made.
            measurement: The measurement.
            purpose: Why it was made; an anchor's or a confirmation's never becomes the figure of
                a trial that is not one.
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
        """Stores what became of a trial; final.

        Args:
            study_id: The study.
            trial: Number of the trial.
            state: What became of it.
            resolved: What its server said it ran; `None` if it never served.
            failure: Why it is not `complete`.
            launch: Number of the launch that judged it; the latest one that works on it unless
                given. A verdict spends that launch, and its measurements are the trial's.

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
        """Stores a trial as `inactive` that no launch is spent on; returns its number.

        Args:
            study_id: The study.
            configuration: What would have been measured.
            purpose: What for.
            failure: Why it is not.
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
