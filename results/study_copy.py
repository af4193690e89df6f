"""Copy studies within a database (forks) and between databases, with Optuna's tables."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, insert, select

from results import tables
from results.database import insert_row
from results.errors import MirrorConflict, StoreError, StudyExists
from results.optuna_mirror import close_storage, optuna_at_work, rdb_storage
from results.records import TrialState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from optuna.storages import RDBStorage
    from sqlalchemy import Connection, RowMapping, Table

    from results.store import Store

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


@dataclass(frozen=True, slots=True)
class CopiedStudy:
    """A copied study.

    Attributes:
        name: Its name.
        counts: Number of records, verified in the copy.
        mirrored: Whether its Optuna tables were copied.
    """

    name: str
    counts: Counts
    mirrored: bool


def copy_studies(source: Store, target: Store) -> tuple[CopiedStudy, ...]:
    """Copy all studies of `source`, from one consistent view, into `target`, or copy nothing.

    Rows get new ids; names, numbers, marks and owners stay.

    Raises:
        StudyExists: `target` has a study of the same name.
        MirrorConflict: `target` has an Optuna study of that name that the tuner did not create.
        StoreError: `target` refuses the records, or does not return them.
    """
    names = [study.name for study in source.studies()]
    ours = {study.name for study in target.studies()}
    if taken := [name for name in names if name in ours]:
        raise StudyExists(
            f"{target.shown} already has a study of this name: {', '.join(taken)}; "
            "copy to another database"
        )
    mirrors = source.optuna_states()
    with ExitStack() as opened, ExitStack() as undo:
        # Optuna's tables first: while the source is being written, its copy is then older than the
        # tuner's tables, which a resumed study corrects.
        mirrored = [name for name in names if name in mirrors]
        _copy_mirrors(source, target, mirrored, opened, undo)
        with source._reading() as reading, target._writing() as writing:  # noqa: SLF001 - one package
            copied = [
                CopiedStudy(name, counts, name in mirrored)
                for name, counts in _copy_rows(reading, writing)
            ]
        undo.pop_all()
    return tuple(copied)


def _copy_rows(reading: Connection, writing: Connection) -> list[tuple[str, Counts]]:
    copied = []
    studies = reading.execute(select(tables.studies).order_by(tables.studies.c.id)).mappings()
    for row in studies.all():
        values = {name: value for name, value in row.items() if name != "id"}
        target_id = insert_row(writing, tables.studies, values)
        counts = copy_all(reading, writing, row["id"], target_id)
        if (found := _count(writing, target_id)) != counts:
            raise StoreError(
                f"the copy of study {row['name']!r} has {asdict(found)}, expected "
                f"{asdict(counts)}; nothing was copied"
            )
        copied.append((row["name"], counts))
    return copied


def _count(connection: Connection, study_id: int) -> Counts:
    trials, measurements = tables.trials, tables.measurements
    of_study = trials.c.study_id == study_id
    measured = measurements.join(trials, trials.c.id == measurements.c.trial_id)
    requested = tables.requests.join(
        measured, tables.requests.c.measurement_id == measurements.c.id
    )
    questions = (
        select(func.count()).where(tables.launches.c.study_id == study_id),
        select(func.count()).where(of_study),
        select(func.count()).select_from(measured).where(of_study),
        select(func.count()).select_from(requested).where(of_study),
    )
    return Counts(*(int(connection.execute(question).scalar_one()) for question in questions))


def _copy_mirrors(
    source: Store, target: Store, names: Sequence[str], opened: ExitStack, undo: ExitStack
) -> None:
    """Copy Optuna's studies; `undo` deletes the copies."""
    there = target.optuna_names()
    left = target.optuna_states()
    if foreign := [name for name in names if name in there and name not in left]:
        raise MirrorConflict(
            f"Optuna's tables of {target.shown} have a study that tuner did not create: "
            f"{', '.join(foreign)}; copy to another database"
        )
    if not names:
        return
    import optuna  # noqa: PLC0415 - takes half a second

    with optuna_at_work():
        origin = rdb_storage(source.url)
        opened.callback(close_storage, origin)
        copies = rdb_storage(target.url)
        opened.callback(close_storage, copies)
        for name in names:
            if name in left:  # left by an interrupted copy: the tuner has no such study there
                optuna.delete_study(study_name=name, storage=copies)
            undo.callback(_delete, copies, name)
            optuna.copy_study(
                from_study_name=name, from_storage=origin, to_storage=copies, to_study_name=name
            )


def _delete(storage: RDBStorage, name: str) -> None:
    import optuna  # noqa: PLC0415

    with suppress(KeyError), optuna_at_work():
        optuna.delete_study(study_name=name, storage=storage)
