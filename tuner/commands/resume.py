"""`tuner resume`: continue a stored study, or fork it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tuner.commands.fork import (
    differences_of_load,
    differences_of_machine,
    refuse_unread,
    start_fork,
)
from tuner.commands.run import holding, run_study
from tuner.commands.show import opened, print_report, problem_line, report_of
from tuner.errors import CommandError, Exit, copyable
from tuner.preflight.sglang import apply_preflight
from tuner.preflight.workload import check_prompts
from tuner.studies import assembly
from tuner.studies.differences import Difference, study_differences

if TYPE_CHECKING:
    from results.store import Store
    from results.studies import StoredStudy
    from search_spaces.study_file.load import StoredFile
    from search_spaces.study_file.study import Study

_FINISHED = frozenset({"exhausted", "budget", "converged"})


def resume(
    name_or_path: str,
    *,
    storage: str,
    take_over: bool,
    wait: bool,
    fork: str | None,
    launches: int | None,
    hours: float | None,
    no_hot_switch: bool,
    as_json: bool,
) -> Exit:
    """Continue a stored study, or a fork of it."""
    if fork is None and no_hot_switch:
        raise CommandError(
            "hot switching of a stored study cannot be changed; add --fork NEW to create a study "
            "that launches every setting separately and reuses results measured that way"
        )
    if fork is None and (launches is not None or hours is not None):
        raise CommandError(
            "the budget of a stored study cannot be changed; add --fork NEW to create a study "
            "with another budget that reuses these results"
        )
    with opened(storage, name_or_path) as (store, stored, file):
        read = assembly.stored_study_file(stored, file)
        changed = None
        if file is not None and file.digest != stored.digest:
            changed = assembly.as_stored(stored, file)
        if fork is not None:
            return start_fork(
                store,
                stored,
                read,
                changed,
                name=fork,
                launches=launches,
                hours=hours,
                no_hot_switch=no_hot_switch,
                wait=wait,
                as_json=as_json,
            )
        return _go_on(
            store,
            stored,
            read,
            changed,
            shown=name_or_path,
            take_over=take_over,
            wait=wait,
            as_json=as_json,
        )


def _go_on(
    store: Store,
    stored: StoredStudy,
    read: StoredFile,
    file: Study | None,
    *,
    shown: str,
    take_over: bool,
    wait: bool,
    as_json: bool,
) -> Exit:
    study = read.study
    notes = [
        f"the stored study file fails a check of this version: {problem_line(p)}"
        for p in read.problems
    ]
    found: list[Difference] = []
    if file is not None:
        found += study_differences(study, file, simulated=stored.simulated)
        notes += _ignored_changes(shown, found)
        found = [difference for difference in found if difference.matters]
        _refuse(stored, found, shown)
    if stored.stopped in _FINISHED:
        sys.stderr.write(
            copyable(
                f"study {stored.name} is finished: {stored.stop_reason}; continue from it with "
                f"`tuner resume --study {shown} --fork NEW --launches N`\n"
            )
        )
        for note in notes:
            sys.stderr.write(copyable(f"note: {note}\n"))
        _, report = report_of(store, stored, study)
        print_report(report, as_json=as_json)
        return Exit.DONE
    refuse_unread(stored, read)
    if (lengths := assembly.equal_lengths(study)) is not None:
        notes.append(lengths)
    file_notes = check_prompts(study)
    servers = assembly.reopen_servers(store, stored, study)
    if (missing := servers.check()) is not None:
        raise CommandError(missing)
    problem = assembly.build_problem(study, servers, hot_switch=stored.hot_switch, notes=file_notes)
    differences, machine_notes = differences_of_machine(store, stored, servers)
    found += differences
    if problem.space.digest != stored.space_digest:
        message = (
            "space: this version of the tuner derives a different search space from the stored file"
        )
        found.append(Difference("space", message))
    found += differences_of_load(store, stored, study, servers)
    _refuse(stored, found, shown)
    problem = apply_preflight(problem, servers, study=stored.name, storage=store.shown)
    return run_study(
        store,
        stored,
        problem,
        servers,
        take_over=take_over,
        wait=wait,
        locks=holding(servers, stored.name, store.shown, wait=wait),
        notes=(*notes, *machine_notes),
        as_json=as_json,
    )


def _refuse(stored: StoredStudy, found: list[Difference], shown: str) -> None:
    """Raise if new results would not be comparable with the stored ones."""
    if not found:
        return
    lines = "\n".join(f"  {difference.message}" for difference in found)
    raise CommandError(
        f"study {stored.name} cannot continue: new results would not be comparable\n{lines}\n"
        "Restore the original environment, or fork the study to reuse the results that are still "
        f"valid: `tuner resume --study {shown} --fork NEW`"
    )


def _ignored_changes(shown: str, found: list[Difference]) -> list[str]:
    """Notes on changes of the study file that the stored study does not use."""
    if any(difference.matters for difference in found):
        return []
    if not found:
        return [f"{shown} differs from the stored study file only in comments or formatting"]
    return [
        f"{difference.message}: the study keeps its stored value; use the new value with "
        f"`tuner resume --study {shown} --fork NEW`"
        for difference in found
    ]
