"""Copy the records of a study to another study, in the same or another database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from results import tables
from results.database import insert_row
from results.errors import StoreError
from results.records import TrialState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, RowMapping, Table

    Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of records of each kind."""

    launches: int = 0
    trials: int = 0
    measurements: int = 0
    requests: int = 0


def copy_all(source: Connection, target: Connection, source_id: int, target_id: int) -> Counts:
    """Copy all launches and trials with their numbers, including unfinished ones."""
    launches = _rows(source, tables.launches, source_id)
    trials = _rows(source, tables.trials, source_id)
    return _copy(
        source,
        target,
        [{**row, "study_id": target_id} for row in launches],
        [{**row, "study_id": target_id} for row in trials],
    )


def copy_finished(
    connection: Connection,
    source_id: int,
    target_id: int,
    numbers: Sequence[int],
    *,
    change_launch: Callable[[Row], Mapping[str, object]],
    change_trial: Callable[[Row], Mapping[str, object]] = lambda _: {},
) -> Counts:
    """Copy finished trials and their launches within a database.

    Args:
        connection: Connection to the database of both studies.
        source_id: The source.
        target_id: A study without trials and launches.
        numbers: Numbers of the trials in the source, which become 0, 1, 2, ... in this order.
        change_launch: Columns of a launch to change.
        change_trial: Columns of a trial to change.

    Raises:
        StoreError: A trial does not exist, is repeated, or is not finished.
    """
    known = {row["number"]: row for row in _rows(connection, tables.trials, source_id)}
    trials: list[Row] = []
    for position, number in enumerate(numbers):
        row = known.pop(number, None)
        if row is None:
            raise StoreError(f"study {source_id} has no trial {number}, or it is named twice")
        if row["state"] == TrialState.RUNNING.value:
            raise StoreError(f"trial {number} of study {source_id} is not finished")
        trials.append({**row, **change_trial(row), "study_id": target_id, "number": position})
    ids = {row["id"] for row in trials}
    links = tables.launch_trials.c
    worked = {
        launch
        for launch, trial in connection.execute(
            select(links.launch_id, links.trial_id)
            .join(tables.trials, tables.trials.c.id == links.trial_id)
            .where(tables.trials.c.study_id == source_id)
        )
        if trial in ids
    } | {row["judged_launch_id"] for row in trials}
    launches = [row for row in _rows(connection, tables.launches, source_id) if row["id"] in worked]
    return _copy(
        connection,
        connection,
        [
            {**row, **change_launch(row), "study_id": target_id, "number": number}
            for number, row in enumerate(launches)
        ],
        trials,
    )


def _rows(connection: Connection, table: Table, study_id: int) -> list[Row]:
    found = connection.execute(
        select(table).where(table.c.study_id == study_id).order_by(table.c.number)
    )
    return [dict(row) for row in found.mappings()]


def _copy(
    source: Connection, target: Connection, launches: Sequence[Row], trials: Sequence[Row]
) -> Counts:
    """Insert rows under new ids, with the rows that depend on them."""
    launch_ids = {row["id"]: _insert(target, tables.launches, row) for row in launches}
    trial_ids = {
        row["id"]: _insert(
            target,
            tables.trials,
            {**row, "judged_launch_id": launch_ids.get(row["judged_launch_id"])},
        )
        for row in trials
    }
    measurements = requests = 0
    for old, new in trial_ids.items():
        for link in _of(source, tables.launch_trials, "trial_id", old, "launch_id"):
            target.execute(
                insert(tables.launch_trials),
                {**link, "trial_id": new, "launch_id": launch_ids[link["launch_id"]]},
            )
        for row in _of(source, tables.measurements, "trial_id", old, "id"):
            values = {**row, "trial_id": new, "launch_id": launch_ids[row["launch_id"]]}
            measurement = _insert(target, tables.measurements, values)
            measurements += 1
            samples = [
                {**_without_id(sample), "measurement_id": measurement}
                for sample in _of(source, tables.requests, "measurement_id", row["id"], "position")
            ]
            requests += len(samples)
            if samples:
                target.execute(insert(tables.requests), samples)
    return Counts(len(launch_ids), len(trial_ids), measurements, requests)


def _of(
    connection: Connection, table: Table, key: str, value: int, order: str
) -> Sequence[RowMapping]:
    """Rows that depend on one row, in order."""
    question = select(table).where(table.c[key] == value).order_by(table.c[order])
    return connection.execute(question).mappings().all()


def _insert(connection: Connection, table: Table, row: Row) -> int:
    return insert_row(connection, table, _without_id(row))


def _without_id(row: Mapping[Any, Any]) -> Row:
    return {str(name): value for name, value in row.items() if name != "id"}
