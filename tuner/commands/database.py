"""`tuner db`: list, check, back up and copy the database."""

from __future__ import annotations

import hashlib
import shlex
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import make_url

from results.database import address_of, shown_address
from results.errors import StoreMissing, StoreOutdated
from results.records import LaunchState, TrialState
from results.store import Store
from results.transfer import copy_studies
from results.upkeep import whole_file
from search_spaces.problems import StudyFileError
from search_spaces.simulated_acceptance import NOTICE
from tuner.commands.show import report_of
from tuner.errors import CommandError, Exit, copyable
from tuner.formatting import counted, describe
from tuner.reports.json_text import dump
from tuner.studies import assembly
from tuner.studies.assembly import make_leaderboard, stored_study_file
from tuner.verdict.scores import comparable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from results.records import Launch, Trial
    from results.studies import StoredStudy
    from results.transfer import CopiedStudy


def list_studies(*, storage: str, as_json: bool) -> Exit:
    """Print one line per study."""
    with _reading(storage) as store:
        studies = [_summary(store, stored) for stored in store.studies()]
        shown = store.shown
    if as_json:
        sys.stdout.write(dump({"storage": shown, "studies": studies}))
        return Exit.DONE
    if not studies:
        sys.stdout.write(f"{shown} has no study; create one with `tuner sweep`\n")
    width = max((len(study["name"]) for study in studies), default=0)
    for study in studies:
        mark = " (simulated)" if study["simulated"] else ""
        mark += f"; {NOTICE}" if study["simulated_acceptance"] else ""
        forked = f", forked from {study['forked_from']}" if study["forked_from"] else ""
        sys.stdout.write(
            f"{study['name']:<{width}}  {study['state']:<11} {counted(study['trials'], 'trial')}, "
            f"{counted(study['launches_spent'], 'launch')} spent{forked}; {_best_line(study)}"
            f"{mark}\n"
        )
    return Exit.DONE


def _best_line(study: dict[str, Any]) -> str:
    best = study["best"]
    if study["unreadable"] is not None:
        return f"unreadable study file: {study['unreadable']}"
    if best is None:
        return "no result yet"
    return f"best: trial {best['trial']}, {best['configuration']}, {best['output_tok_s']:.1f} tok/s"


def _summary(store: Store, stored: StoredStudy) -> dict[str, Any]:
    owner = store.owner(stored.id)
    state = stored.stopped or ("running" if owner is not None and owner.may_live() else "killed")
    best = unreadable = simulated_acceptance = None
    try:
        _, report = report_of(store, stored, assembly.stored_study_file(stored).study)
    except (StudyFileError, CommandError) as error:
        # Created by another version of the tuner; its results are still stored.
        unreadable = str(error).splitlines()[0]
    else:
        simulated_acceptance = report.simulated_acceptance
        if (trial := report.leaderboard.best) is not None:
            best = {
                "trial": trial.number,
                "configuration": describe(trial.configuration, report.fixed),
                "score": report.leaderboard.score(trial),
                "output_tok_s": trial.measurements[0].output_tok_s,
            }
    return {
        "name": stored.name,
        "state": state,
        "simulated": stored.simulated,
        "simulated_acceptance": simulated_acceptance,
        "created": stored.created,
        "forked_from": stored.forked_from,
        "trials": len(store.trials(stored.id)),
        "launches": len(store.launches(stored.id)),
        "launches_spent": store.launches_spent(stored.id),
        "best": best,
        "unreadable": unreadable,
    }


def check(*, storage: str, as_json: bool) -> Exit:
    """Print problems of the database and how to solve them."""
    try:
        with Store.open(storage, read_only=True) as store:
            shown = store.shown
            studies = len(store.studies())
            problems = tuple(problems_of(store))
    except StoreMissing as error:
        raise CommandError(f"{error}; create a study with `tuner sweep`") from error
    except StoreOutdated as error:
        shown, studies = shown_address(storage), 0
        problems = (Problem("outdated", None, str(error), "then run `tuner db check` again"),)
    if as_json:
        listed = [asdict(problem) for problem in problems]
        sys.stdout.write(
            dump({"storage": shown, "ok": not problems, "studies": studies, "problems": listed})
        )
    else:
        for problem in problems:
            about = f"study {problem.study}: " if problem.study is not None else ""
            sys.stdout.write(copyable(f"{about}{problem.message}\n  {problem.advice}\n"))
        if not problems:
            sys.stdout.write(f"{shown}: {_count(studies)}, no problem found\n")
    return Exit.FAULT if problems else Exit.DONE


def backup(file: Path | None, *, storage: str, as_json: bool) -> Exit:
    """Write the whole database to one SQLite file."""
    with _reading(storage) as store:
        sqlite = make_url(store.url).get_backend_name() == "sqlite"
        file = (file or _named_by_time(store, beside=sqlite)).absolute()
        if sqlite:
            store.copy_file(file)
        else:
            with whole_file(file) as part, Store.open(address_of(part)) as target:
                copy_studies(store, target)
        shown = store.shown
    with Store.open_to_read(address_of(file)) as written:
        studies = [study.name for study in written.studies()]
    size = file.stat().st_size
    if as_json:
        sys.stdout.write(
            dump({"storage": shown, "file": str(file), "bytes": size, "studies": studies})
        )
    else:
        sys.stdout.write(
            f"wrote {file}: {_count(len(studies))}, {size / 1e6:.1f} MB, with Optuna's tables; "
            f"open it with --storage {shlex.quote(address_of(file))}\n"
        )
    return Exit.DONE


def _named_by_time(store: Store, *, beside: bool) -> Path:
    name = f"{time.strftime('%Y%m%d-%H%M%S')}.db"
    if not beside:
        return Path(f"tuner-{name}")
    origin = Path(str(make_url(store.url).database))
    return origin.with_name(f"{origin.stem}-{name}")


def copy(*, storage: str, to: str, as_json: bool) -> Exit:
    """Copy all studies to another database."""
    with _reading(storage) as source, Store.open(to) as target:
        if target.in_memory:
            raise CommandError(
                f"--to {to} is an in-memory database; use a file or a PostgreSQL database"
            )
        if target.url == source.url:
            raise CommandError("--to is the same database as --storage; use another one")
        running = [
            study.name
            for study in source.studies()
            if (owner := source.owner(study.id)) is not None and owner.may_live()
        ]
        copied = copy_studies(source, target)
        shown = source.shown, target.shown
    for name in running:
        sys.stderr.write(f"note: study {name} is running; the copy has its results up to now\n")
    if as_json:
        studies = [{"name": c.name, **asdict(c.counts), "optuna": c.mirrored} for c in copied]
        sys.stdout.write(dump({"from": shown[0], "to": shown[1], "studies": studies}))
    else:
        for study in copied:
            sys.stdout.write(_copied_line(study))
        sys.stdout.write(
            f"copied {_count(len(copied))} to {shown[1]}; {shown[0]} still has them. Continue "
            "each study in one of the two databases only.\n"
        )
    return Exit.DONE


def _copied_line(study: CopiedStudy) -> str:
    counts = study.counts
    optuna = "with Optuna's tables" if study.mirrored else "not in Optuna's tables"
    return (
        f"{study.name}: {counted(counts.trials, 'trial')}, "
        f"{counted(counts.launches, 'launch')}, {counted(counts.measurements, 'measurement')}, "
        f"{counted(counts.requests, 'request')}; {optuna}\n"
    )


def _count(studies: int) -> str:
    return "1 study" if studies == 1 else f"{studies} studies"


def _reading(storage: str) -> Store:
    try:
        return Store.open_to_read(storage)
    except StoreMissing as error:
        raise CommandError(f"{error}; create a study with `tuner sweep`") from error


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
