"""Create studies that reuse results of another study."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from results import rows, tables
from results.connection import Connected, lock_study
from results.records import LaunchState
from results.studies import ForkedTrial
from results.study_copy import copy_finished
from results.study_writer import insert_study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.studies import NewStudy, StoredStudy


class ForkWriter(Connected):
    """Part of `results.store.Store` that creates forks."""

    def fork(
        self, source_id: int, new: NewStudy, trials: Sequence[int | ForkedTrial]
    ) -> StoredStudy:
        """Store a new study that begins with trials of another study, or store nothing.

        Each trial is copied with its state, failure, resolved configuration, measurements, samples,
        and launches; each launch is copied once. A copied launch keeps state (a running one becomes
        `lost`), times, command, process and log. It gets a new mark, and `imported_from` is
        `"study#launch"`. Copied launches do not count against the fork's budget (`launches_spent`).

        Args:
            source_id: The study to fork.
            new: The new study; `forked_from` is set to the source's name.
            trials: Finished trials of the source, which become 0, 1, 2, ... in this order. Trials
                given by number are copied unchanged.

        Returns:
            The new study, without an owner.

        Raises:
            StudyExists: A study with this name exists.
            StudyNotFound: The source does not exist.
            StoreError: A trial does not exist, is repeated, or is not finished.
        """
        with self._writing() as connection:
            lock_study(connection, source_id)
            source = connection.execute(
                select(tables.studies.c.name).where(tables.studies.c.id == source_id)
            ).scalar_one()
            study = rows.study_of(insert_study(connection, new, self.shown, forked_from=source))

            def import_launch(row: dict[str, Any]) -> dict[str, object]:
                running = row["state"] == LaunchState.RUNNING.value
                return {
                    "mark": uuid.uuid4().hex,
                    "imported_from": f"{source}#{row['number']}",
                    "state": LaunchState.LOST.value if running else row["state"],
                }

            changes = {t.number: _judged(t) for t in trials if isinstance(t, ForkedTrial)}
            numbers = [t.number if isinstance(t, ForkedTrial) else t for t in trials]
            copy_finished(
                connection,
                source_id,
                study.id,
                numbers,
                change_launch=import_launch,
                change_trial=lambda row: changes.get(row["number"], {}),
            )
        return study


def _judged(trial: ForkedTrial) -> dict[str, object]:
    return {
        **rows.failure_columns(trial.failure),
        "configuration": trial.configuration.to_dict(),
        "configuration_key": trial.configuration.key,
        "state": trial.state.value,
    }
