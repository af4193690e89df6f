"""Problems of a database, each with advice."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from results.records import LaunchState, TrialState
from search_spaces.problems import StudyFileError
from tuner.studies.assembly import make_leaderboard, stored_study_file
from tuner.verdict.scores import comparable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from results.records import Launch, Trial
    from results.store import Store
    from results.studies import StoredStudy


Kind = Literal[
    "damaged",
    "outdated",
    "launch_without_end",
    "log_missing",
    "log_changed",
    "mirror_behind",
    "mirror_foreign",
]
"""Stable codes of problems (`docs/database.md`)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of the database.

    Attributes:
        kind: Stable code.
        study: Name of the study; `None`: the whole database.
        message: The finding.
        advice: How to solve it.
    """

    kind: Kind
    study: str | None
    message: str
    advice: str


def problems_of(store: Store) -> Iterator[Problem]:
    """Find all problems of a database without changing it."""
    for damage in store.damage():
        yield Problem(
            "damaged",
            None,
            damage,
            "stop every tuner, copy the damaged file, and restore a backup",
        )
    mirrors = store.optuna_states()
    for study in store.studies():
        owner = store.owner(study.id)
        running = owner is not None and owner.may_live()
        launches = store.launches(study.id)
        if not running:
            yield from _unfinished(study, launches)
        yield from _logs(study, launches)
        if not running and study.name in mirrors:
            yield from _mirror(study, _trials(store, study), mirrors[study.name])


def _trials(store: Store, study: StoredStudy) -> tuple[Trial, ...]:
    """Judged trials, or the stored trials if the study file is unreadable."""
    try:
        return make_leaderboard(store, study, stored_study_file(study).study).trials
    except StudyFileError:
        return store.trials(study.id)


def _unfinished(study: StoredStudy, launches: tuple[Launch, ...]) -> Iterator[Problem]:
    for launch in launches:
        if launch.state is LaunchState.RUNNING:
            yield Problem(
                "launch_without_end",
                study.name,
                f"launch {launch.id} did not finish: its tuner was killed",
                f"run `tuner resume --study {study.name}`, which stops its processes",
            )


def _logs(study: StoredStudy, launches: tuple[Launch, ...]) -> Iterator[Problem]:
    here = socket.gethostname()
    for launch in launches:
        host = launch.process.host if launch.process is not None else ""
        if launch.log_digest is None or host not in {"", here}:
            continue  # not recorded, or on another machine
        try:
            with Path(launch.intent.log).open("rb") as log:
                digest = hashlib.file_digest(log, "sha256").hexdigest()
        except OSError as error:
            yield Problem(
                "log_missing",
                study.name,
                f"cannot read the log of launch {launch.id}: {launch.intent.log} "
                f"({error.strerror or error})",
                "restore the file; results do not depend on it",
            )
            continue
        if digest != launch.log_digest:
            yield Problem(
                "log_changed",
                study.name,
                f"the log of launch {launch.id} changed after the launch: {launch.intent.log}",
                "do not rely on this log; results do not depend on it",
            )


_OPTUNA_STATES: Final = {
    TrialState.COMPLETE: "COMPLETE",
    TrialState.INFEASIBLE: "COMPLETE",
    TrialState.INVALID: "FAIL",
    TrialState.FAILED: "FAIL",
    TrialState.INACTIVE: "FAIL",
}


def _mirror(
    study: StoredStudy, trials: tuple[Trial, ...], states: Mapping[int, str]
) -> Iterator[Problem]:
    if foreign := sorted(set(states) - {trial.number for trial in trials}):
        yield Problem(
            "mirror_foreign",
            study.name,
            f"Optuna's tables have trials that are not in the study: {_some(foreign)}",
            "another program wrote them; trust `tuner show`, not optuna-dashboard",
        )
    # The mirror gets a measured trial only after its baselines are known.
    scored = any(
        states.get(t.number) == "COMPLETE" for t in trials if t.state is TrialState.COMPLETE
    )
    behind = [
        trial.number
        for trial in trials
        if trial.state is not TrialState.RUNNING
        and (scored or not comparable(trial))
        and states.get(trial.number) != _OPTUNA_STATES[trial.state]
    ]
    if behind:
        finished = study.stopped in {"exhausted", "budget", "converged"}
        yield Problem(
            "mirror_behind",
            study.name,
            f"Optuna's tables lack results of trials {_some(behind)}",
            "use `tuner show`; optuna-dashboard is incomplete"
            if finished
            else f"run `tuner resume --study {study.name}`, which updates them",
        )


def _some(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown
