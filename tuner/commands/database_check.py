"""What may be wrong with a database, and what to do about each."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from results.records import LaunchState, TrialState
from search_spaces.problems import StudyFileError
from tuner.studies.assembly import make_standing, stored_study_file
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
"""Short stable codes of what may be wrong (`docs/database.md`)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong.

    Attributes:
        kind: What it is.
        study: The study that it is about; `None` for the database itself.
        message: What was found.
        advice: What to do.
    """

    kind: Kind
    study: str | None
    message: str
    advice: str


def problems_of(store: Store) -> Iterator[Problem]:
    """Looks through a database; changes nothing."""
    for damage in store.damage():
        yield Problem(
            "damaged",
            None,
            damage,
            "stop every tuner, keep a copy of the file as it is, and go back to a backup",
        )
    mirrors = store.optuna_states()
    for study in store.studies():
        owner = store.owner(study.id)
        at_work = owner is not None and owner.may_live()
        launches = store.launches(study.id)
        if not at_work:
            yield from _without_end(study, launches)
        yield from _logs(study, launches)
        if not at_work and study.name in mirrors:
            yield from _mirror(study, _trials(store, study), mirrors[study.name])


def _trials(store: Store, study: StoredStudy) -> tuple[Trial, ...]:
    """Trials as `Leaderboard.of` judges them; as stored where the study file is unreadable."""
    try:
        return make_standing(store, study, stored_study_file(study).study).trials
    except StudyFileError:
        return store.trials(study.id)


def _without_end(study: StoredStudy, launches: tuple[Launch, ...]) -> Iterator[Problem]:
    for launch in launches:
        if launch.state is LaunchState.RUNNING:
            yield Problem(
                "launch_without_end",
                study.name,
                f"launch {launch.id} has no end: its tuner was killed",
                f"`tuner resume --study {study.name}` ends what is left of it",
            )


def _logs(study: StoredStudy, launches: tuple[Launch, ...]) -> Iterator[Problem]:
    here = socket.gethostname()
    for launch in launches:
        host = launch.process.host if launch.process is not None else ""
        if launch.log_digest is None or host not in {"", here}:
            continue  # never recorded, or on a disk that can't be seen from here
        try:
            with Path(launch.intent.log).open("rb") as log:
                digest = hashlib.file_digest(log, "sha256").hexdigest()
        except OSError as error:
            yield Problem(
                "log_missing",
                study.name,
                f"the log of launch {launch.id} cannot be read: {launch.intent.log} "
                f"({error.strerror or error})",
                "bring it back from where it was moved to; figures do not depend on it, but what "
                "the server said is lost without it",
            )
            continue
        if digest != launch.log_digest:
            yield Problem(
                "log_changed",
                study.name,
                f"the log of launch {launch.id} is not what it was at its end: {launch.intent.log}",
                "do not rely on it; something has written to it since",
            )


_OPTUNAS: Final = {
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
            f"Optuna's tables hold trials that the study does not have: {_some(foreign)}",
            "something else wrote into them; `tuner show` is right, optuna-dashboard is not",
        )
    # A trial with figures is told once its baselines are known, which may be never.
    scored = any(
        states.get(t.number) == "COMPLETE" for t in trials if t.state is TrialState.COMPLETE
    )
    behind = [
        trial.number
        for trial in trials
        if trial.state is not TrialState.RUNNING
        and (scored or not comparable(trial))
        and states.get(trial.number) != _OPTUNAS[trial.state]
    ]
    if behind:
        at_rest = study.stopped in {"exhausted", "budget", "converged"}
        yield Problem(
            "mirror_behind",
            study.name,
            f"Optuna's tables are not in step with the study: trials {_some(behind)}",
            "`tuner show` is right, optuna-dashboard shows less"
            if at_rest
            else f"`tuner resume --study {study.name}` brings them up to date",
        )


def _some(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown
