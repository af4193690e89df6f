"""`tuner show`, and how commands open a stored study."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from results.database import shown_address
from results.errors import StoreMissing, StudyNotFound
from results.store import Store
from search_spaces.problems import StudyFileError
from search_spaces.study_file.load import load_study
from tuner.errors import CommandError, Exit
from tuner.reports.build_report import make_report
from tuner.reports.json_text import dump
from tuner.studies import assembly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.records import Trial
    from results.studies import StoredStudy
    from runners.base import Runner
    from search_spaces.problems import Problem
    from search_spaces.study_file.study import Study
    from tuner.reports.report import StudyReport


@contextlib.contextmanager
def existing(
    storage: str, name_or_path: str | None, *, read_only: bool = False
) -> Iterator[tuple[Store, StoredStudy, Study]]:
    """Open a stored study by name or study file. `None` means the only study of the database."""
    with opened(storage, name_or_path, read_only=read_only) as (store, stored, file):
        if file is not None and file.digest != stored.digest:
            raise CommandError(
                f"{name_or_path} differs from the study file that created study {stored.name}. "
                f"Use --study {stored.name} for the stored study, or create another one with "
                f"`tuner sweep --study {name_or_path} --name NAME`."
            )
        read = assembly.stored_study_file(stored, file)
        for problem in read.unread:
            sys.stderr.write(
                f"warning: stored study file not understood: {problem_line(problem)}\n"
            )
        yield store, stored, read.study


@contextlib.contextmanager
def opened(
    storage: str, name_or_path: str | None, *, read_only: bool = False
) -> Iterator[tuple[Store, StoredStudy, Study | None]]:
    """Open a stored study; also yields the study file given, which may have changed since."""
    file, refused = _file_of(name_or_path)
    name = file.name if file is not None else name_or_path
    try:
        store = Store.open_to_read(storage) if read_only else Store.open(storage, create=False)
    except StoreMissing as error:
        raise CommandError(f"{error}; create a study with `tuner sweep`") from error
    with store:
        if refused is not None:
            # Checks that are newer than the study refuse its file.
            name = _created_from(store, Path(name_or_path or ""), refused)
        elif name is None:
            name = _only_study(store, shown_address(storage))
        try:
            stored = store.study(name)
        except StudyNotFound as error:
            others = ", ".join(s.name for s in store.studies()) or "none"
            same = [s.name for s in store.studies() if file and s.digest == file.digest]
            if same:  # stored under another name
                raise CommandError(
                    f"{error}; created from this file: {', '.join(same)}. Use --study {same[0]}"
                ) from error
            raise CommandError(
                f"{error}; stored studies: {others}. Create a study with `tuner sweep`, or choose "
                "another database with --storage"
            ) from error
        yield store, stored, file


def _file_of(name_or_path: str | None) -> tuple[Study | None, StudyFileError | None]:
    """Return the study file, or the reason why it cannot be read."""
    if name_or_path is None or not _is_path(name_or_path):
        return None, None
    try:
        return load_study(name_or_path), None
    except StudyFileError as error:
        return None, error


def _created_from(store: Store, file: Path, refused: StudyFileError) -> str:
    """Return the name of the stored study that was created from exactly this file.

    Raises:
        StudyFileError: No stored study has this text; the error is the error of the file.
    """
    try:
        digest = hashlib.sha256(file.read_text(encoding="utf-8-sig").encode()).hexdigest()
    except (OSError, UnicodeDecodeError):
        raise refused from None
    names = [study.name for study in store.studies() if study.digest == digest]
    if len(names) != 1:
        raise refused
    return names[0]


def problem_line(problem: Problem) -> str:
    """Format a problem of a study file in one line."""
    return f"{problem.key}: {problem.message}" if problem.key else problem.message


def _only_study(store: Store, storage: str) -> str:
    names = [study.name for study in store.studies()]
    if not names:
        raise CommandError(f"{storage} has no study; create one with `tuner sweep`")
    if len(names) > 1:
        raise CommandError(
            f"{storage} has {len(names)} studies; choose one with --study: {', '.join(names)}"
        )
    return names[0]


def _is_path(name_or_path: str) -> bool:
    return "/" in name_or_path or Path(name_or_path).suffix in {".yaml", ".yml"}


def show(name_or_path: str | None, *, storage: str, trial: int | None, as_json: bool) -> Exit:
    """Print a stored study, or one trial of it."""
    with existing(storage, name_or_path, read_only=True) as (store, stored, study):
        _, report = report_of(store, stored, study)
        if trial is None:
            print_report(report, as_json=as_json)
            return Exit.DONE
        chosen = trial_of(report, trial)
        if as_json:
            mark = {"simulated_acceptance": report.simulated_acceptance}
            sys.stdout.write(dump({**report.trial_dict(chosen), **mark}))
        else:
            from tuner.reports.text import render_trial  # noqa: PLC0415

            render_trial(report, chosen)
        return Exit.DONE


def report_of(store: Store, stored: StoredStudy, study: Study) -> tuple[Runner, StudyReport]:
    """Make the runner and the report of a stored study."""
    servers = assembly.reopen_servers(store, stored, study)
    return servers, make_report(store, stored.name, study, servers)


def trial_of(report: StudyReport, number: int) -> Trial:
    """Return the trial with this number.

    Raises:
        CommandError: The study has no such trial.
    """
    for trial in report.leaderboard.trials:
        if trial.number == number:
            return trial
    count = len(report.leaderboard.trials)
    known = f"use 0 to {count - 1}" if count else "it has no trial yet"
    raise CommandError(f"study {report.study.name} has no trial {number}; {known}")


def print_report(report: StudyReport, *, as_json: bool) -> None:
    """Print the report of a study."""
    if as_json:
        sys.stdout.write(dump(report.to_dict()))
        return
    from tuner.reports.text import render  # noqa: PLC0415

    render(report)


def exit_code(report: StudyReport) -> Exit:
    """Exit code of `sweep` and `resume`."""
    if report.study.stopped == "interrupted":
        return Exit.INTERRUPTED
    if report.study.stopped == "fault":
        return Exit.FAULT
    return Exit.INFEASIBLE if report.verdict.kind == "infeasible" else Exit.DONE
