"""Create, fork, claim and stop studies."""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import psutil
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from results import rows, tables
from results.database import Connected, lock_study, no_study
from results.errors import StudyBusy, StudyExists
from results.records import LaunchState
from results.studies import ForkedTrial
from results.study_copy import copy_finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, RowMapping

    from results.studies import NewStudy, Stopped, StoredStudy


class StudyWriter(Connected):
    """Part of `results.store.Store` that writes studies."""

    def create_study(self, study: NewStudy) -> StoredStudy:
        """Store a new study.

        Raises:
            StudyExists: A study with this name exists.
        """
        with self._writing() as connection:
            return rows.study_of(insert_study(connection, study, self.shown))

    def claim(self, study_id: int, owner: Owner | None = None, *, take_over: bool = False) -> None:
        """Make `owner` (default: this process) the only tuner of the study.

        Replaces a dead owner. Claiming an owned study again changes nothing.

        Args:
            study_id: The study.
            owner: The new owner.
            take_over: Also replace an owner on another machine, which may be alive.

        Raises:
            StudyBusy: Another tuner owns it, and is or may be alive.
            StudyNotFound: The study does not exist.
        """
        owner = owner or Owner.this_process()
        c = tables.studies.c
        with self._writing() as connection:
            lock_study(connection, study_id)
            pid, started, host = connection.execute(
                select(c.owner_pid, c.owner_started, c.owner_host).where(c.id == study_id)
            ).one()
            if pid is not None:
                _refuse_if_held(Owner(pid, started, host), owner, take_over=take_over)
            connection.execute(
                update(tables.studies)
                .where(c.id == study_id)
                .values(owner_pid=owner.pid, owner_started=owner.started, owner_host=owner.host)
            )

    def release(self, study_id: int, owner: Owner | None = None) -> None:
        """Release a study; changes nothing if `owner` does not own it."""
        owner = owner or Owner.this_process()
        c = tables.studies.c
        with self._writing() as connection:
            connection.execute(
                update(tables.studies)
                .where(c.id == study_id, c.owner_pid == owner.pid, c.owner_host == owner.host)
                .values(owner_pid=None, owner_started=None, owner_host=None)
            )

    def stop_study(
        self, study_id: int, stopped: Stopped | None, reason: str | None, work_s: float = 0.0
    ) -> None:
        """Store why the study stopped, or (`None`) that it continues.

        Args:
            study_id: The study.
            stopped: Why it stopped.
            reason: The reason as a sentence.
            work_s: Seconds of running time since the last `add_work`.
        """
        self._update(
            study_id,
            stopped=stopped,
            stop_reason=None if reason is None else rows.clean_text(reason),
            work_s=tables.studies.c.work_s + work_s,
        )

    def add_work(self, study_id: int, seconds: float) -> None:
        """Add running time, which counts against the budget of hours."""
        self._update(study_id, work_s=tables.studies.c.work_s + seconds)

    def _update(self, study_id: int, **values: object) -> None:
        with self._writing() as connection:
            changed = connection.execute(
                update(tables.studies).where(tables.studies.c.id == study_id).values(**values)
            )
            if not changed.rowcount:
                raise no_study(study_id)


def insert_study(
    connection: Connection, study: NewStudy, database: str, **changes: object
) -> RowMapping:
    """Insert a study and return its row.

    Args:
        connection: A writing transaction.
        study: The study.
        database: Address of the database, for errors.
        changes: Columns with other values than the study's.

    Raises:
        StudyExists: A study with this name exists.
    """
    values = {**asdict(study), "created": time.time(), "work_s": 0.0, **changes}
    try:
        connection.execute(insert(tables.studies).values(values))
    except IntegrityError as error:
        raise StudyExists(f"{database} already has a study named {study.name!r}") from error
    question = select(tables.studies).where(tables.studies.c.name == study.name)
    return connection.execute(question).mappings().one()


def _refuse_if_held(held: Owner, owner: Owner, *, take_over: bool) -> None:
    if held.is_same(owner) or not held.may_live():
        return
    if held.host == owner.host:
        advice = "wait for it or stop it"
    elif take_over:
        return
    else:
        advice = f"check {held.host}; if that tuner is dead, run `tuner resume --take-over`"
    raise StudyBusy(
        f"another tuner (pid {held.pid} on {held.host}) is running this study; {advice}",
        pid=held.pid,
        host=held.host,
    )


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


# The kernel reports start times in hundredths of a second since boot, and the boot time changes a
# little when the clock is set. A pid is not reused within this time.
_SAME_START_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Owner:
    """A tuner process, identified so that a reused pid is not confused with it.

    Attributes:
        pid: Process id.
        started: Start time, seconds since the epoch.
        host: Name of its machine.
    """

    pid: int
    started: float
    host: str

    @classmethod
    def this_process(cls) -> Self:
        """The current process."""
        return cls(os.getpid(), psutil.Process().create_time(), socket.gethostname())

    def is_same(self, other: Owner) -> bool:
        """Whether both are the same process."""
        return (
            self.host == other.host
            and self.pid == other.pid
            and abs(self.started - other.started) < _SAME_START_S
        )

    def may_live(self) -> bool:
        """Whether the process may be alive.

        A process on another machine always may.
        """
        if self.host != socket.gethostname():
            return True
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return abs(process.create_time() - self.started) < _SAME_START_S
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True
