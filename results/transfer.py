"""Copy studies between databases of any kind, with Optuna's tables."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from results import tables
from results.database import insert_row
from results.errors import MirrorConflict, StoreError, StudyExists
from results.optuna_mirror import close_storage, optuna_at_work, rdb_storage
from results.study_copy import Counts, copy_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optuna.storages import RDBStorage
    from sqlalchemy import Connection

    from results.store import Store


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
