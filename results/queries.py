"""Queries of the store, each on one consistent view of the database."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, func, not_, or_, select

from results import rows, tables
from results.database import Connected
from results.errors import StoreError, StudyNotFound
from results.records import LOSING_FAULTS, LaunchState, Purpose, Trial, TrialState
from results.studies import StoredMeasurement, StoredStudy, Unfinished
from results.study_writer import Owner
from search_spaces.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, RowMapping

    from results.records import Launch, RequestSample
    from search_spaces.workload import OperatingPoint

VERDICTS: Final = tuple(state.value for state in TrialState if state.is_verdict)

# Measurements that check or confirm a trial are never its own results.
_BESIDE: Final = frozenset({Purpose.ANCHOR.value, Purpose.CONFIRMATION.value})


class Questions(Connected):
    """Part of `results.store.Store` that reads."""

    def study(self, name: str) -> StoredStudy:
        """Return the study of this name.

        Raises:
            StudyNotFound: The study does not exist.
        """
        with self._reading() as connection:
            row = (
                connection.execute(select(tables.studies).where(tables.studies.c.name == name))
                .mappings()
                .one_or_none()
            )
        if row is None:
            raise StudyNotFound(f"{self.shown} has no study named {name!r}")
        return rows.study_of(row)

    def studies(self) -> tuple[StoredStudy, ...]:
        """All studies, in the order of creation."""
        with self._reading() as connection:
            found = connection.execute(select(tables.studies).order_by(tables.studies.c.id))
            return tuple(rows.study_of(row) for row in found.mappings())

    def owner(self, study_id: int) -> Owner | None:
        """The tuner that owns the study; its process may be dead."""
        c = tables.studies.c
        with self._reading() as connection:
            found = connection.execute(
                select(c.owner_pid, c.owner_started, c.owner_host).where(c.id == study_id)
            ).one_or_none()
        return None if found is None or found[0] is None else Owner(*found)

    def trials(self, study_id: int, *, samples: bool = False) -> tuple[Trial, ...]:
        """All trials by number, with the measurements of the launch that judged each.

        Args:
            study_id: The study.
            samples: Whether to read the requests of the measurements.
        """
        with self._reading() as connection:
            return _trials(connection, study_id, samples=samples)

    def trial(self, study_id: int, number: int, *, samples: bool = True) -> Trial:
        """Return one trial.

        Raises:
            StoreError: The study has no such trial.
        """
        with self._reading() as connection:
            found = _trials(connection, study_id, samples=samples, number=number)
        if not found:
            raise StoreError(f"study {study_id} has no trial {number}")
        return found[0]

    def server_info(self, study_id: int, number: int) -> dict[str, Any] | None:
        """Raw `/server_info` of a trial's server; `None` if the server never answered."""
        with self._reading() as connection:
            return connection.execute(
                select(tables.trials.c.server_info)
                .where(tables.trials.c.study_id == study_id)
                .where(tables.trials.c.number == number)
            ).scalar_one_or_none()

    def measurements(
        self, study_id: int, number: int, *, samples: bool = False
    ) -> tuple[StoredMeasurement, ...]:
        """All measurements of a trial, including those of lost launches and reference runs."""
        with self._reading() as connection:
            found = _measurement_rows(connection, study_id, number)
            of_requests = _samples(connection, [row["id"] for row in found]) if samples else {}
            return tuple(
                StoredMeasurement(
                    number,
                    row["launch_number"],
                    Purpose(row["purpose"]),
                    rows.measurement_of(row, of_requests.get(row["id"], ())),
                )
                for row in found
            )

    def launches(self, study_id: int) -> tuple[Launch, ...]:
        """All launches by number."""
        with self._reading() as connection:
            return _launches(connection, study_id)

    def unfinished(self, study_id: int) -> Unfinished:
        """Launches and trials in state `running`, which a killed run may have left."""
        with self._reading() as connection:
            return Unfinished(
                tuple(
                    launch
                    for launch in _launches(connection, study_id)
                    if launch.state is LaunchState.RUNNING
                ),
                tuple(
                    trial
                    for trial in _trials(connection, study_id, samples=False)
                    if trial.state is TrialState.RUNNING
                ),
            )

    def launches_spent(self, study_id: int) -> int:
        """Number of launches that count against the budget: those that judged a configuration.

        Lost launches (`Launch.is_lost`) and launches copied by a fork do not count. A running
        launch does not count yet, since it may be lost.
        """
        launches, trials = tables.launches.c, tables.trials.c
        lost = or_(
            launches.state.in_((LaunchState.LOST.value, LaunchState.RUNNING.value)),
            and_(
                launches.state == LaunchState.FAILED.value,
                launches.failure_fault.in_(LOSING_FAULTS),
            ),
        )
        with self._reading() as connection:
            spent = connection.execute(
                select(func.count(trials.judged_launch_id.distinct()))
                .join(tables.launches, launches.id == trials.judged_launch_id)
                .where(trials.study_id == study_id, trials.state.in_(VERDICTS), not_(lost))
                .where(launches.imported_from.is_(None))
            ).scalar_one()
        return int(spent)


def _launches(connection: Connection, study_id: int) -> tuple[Launch, ...]:
    launches, trials, links = tables.launches.c, tables.trials.c, tables.launch_trials.c
    numbers: dict[int, list[int]] = defaultdict(list)
    for launch, number in connection.execute(
        select(links.launch_id, trials.number)
        .join(tables.trials, trials.id == links.trial_id)
        .where(trials.study_id == study_id)
        .order_by(links.launch_id, links.position)
    ):
        numbers[launch].append(number)
    found = connection.execute(
        select(tables.launches).where(launches.study_id == study_id).order_by(launches.number)
    )
    return tuple(rows.launch_of(row, tuple(numbers[row["id"]])) for row in found.mappings())


def _trials(
    connection: Connection, study_id: int, *, samples: bool, number: int | None = None
) -> tuple[Trial, ...]:
    trials, launches, links = tables.trials.c, tables.launches.c, tables.launch_trials.c
    wanted = trials.study_id == study_id
    if number is not None:
        wanted &= trials.number == number
    found = (
        connection.execute(
            # Without `server_info`, which is large; `Questions.server_info` reads it.
            select(*(column for column in trials if column.name != "server_info"))
            .where(wanted)
            .order_by(trials.number)
        )
        .mappings()
        .all()
    )
    linked: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for trial, launch, launch_number in connection.execute(
        select(links.trial_id, launches.id, launches.number)
        .join(tables.launches, launches.id == links.launch_id)
        .join(tables.trials, trials.id == links.trial_id)
        .where(wanted)
        .order_by(launches.number)
    ):
        linked[trial].append((launch, launch_number))
    judging = {
        row["id"]: row["judged_launch_id"]
        or (linked[row["id"]][-1][0] if linked[row["id"]] else None)
        for row in found
    }
    purposes = {row["id"]: row["purpose"] for row in found}
    numbers = {launch: number for pairs in linked.values() for launch, number in pairs}
    chosen: dict[int, dict[OperatingPoint, RowMapping]] = defaultdict(dict)
    for row in _measurement_rows(connection, study_id, number):
        trial = row["trial_id"]
        beside = row["purpose"] in _BESIDE and row["purpose"] != purposes[trial]
        if row["launch_id"] == judging[trial] and not beside:
            point = rows.point_of(row)
            # If the launch measured a point twice, the later measurement replaces the earlier one.
            chosen[trial][point] = row
    of_requests: dict[int, tuple[RequestSample, ...]] = {}
    if samples:
        of_requests = _samples(
            connection, [row["id"] for points in chosen.values() for row in points.values()]
        )
    return tuple(
        Trial(
            number=row["number"],
            purpose=Purpose(row["purpose"]),
            state=TrialState(row["state"]),
            configuration=Configuration.from_dict(row["configuration"]),
            resolved=row["resolved"] and Configuration.from_dict(row["resolved"]),
            failure=rows.failure_of(row),
            measurements=tuple(
                rows.measurement_of(measured, of_requests.get(measured["id"], ()))
                for measured in chosen[row["id"]].values()
            ),
            launches=tuple(launch_number for _, launch_number in linked[row["id"]]),
            judged_in=numbers.get(row["judged_launch_id"]),
        )
        for row in found
    )


def _measurement_rows(
    connection: Connection, study_id: int, number: int | None
) -> Sequence[RowMapping]:
    measurements, trials, launches = tables.measurements, tables.trials.c, tables.launches.c
    question = (
        select(measurements, launches.number.label("launch_number"))
        .join(tables.trials, trials.id == measurements.c.trial_id)
        .join(tables.launches, launches.id == measurements.c.launch_id)
        .where(trials.study_id == study_id)
        .order_by(measurements.c.id)
    )
    if number is not None:
        question = question.where(trials.number == number)
    return connection.execute(question).mappings().all()


_BATCH: Final = 500
"""Numbers per query: SQLite takes a limited count of bound values."""


def _samples(
    connection: Connection, measurements: Sequence[int]
) -> dict[int, tuple[RequestSample, ...]]:
    requests = tables.requests.c
    found: dict[int, list[RequestSample]] = defaultdict(list)
    for start in range(0, len(measurements), _BATCH):
        for row in connection.execute(
            select(tables.requests)
            .where(requests.measurement_id.in_(measurements[start : start + _BATCH]))
            .order_by(requests.measurement_id, requests.position)
        ).mappings():
            found[row["measurement_id"]].append(rows.sample_of(row))
    return {measurement: tuple(of) for measurement, of in found.items()}
