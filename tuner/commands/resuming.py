"""`tuner resume`: goes on with a study, or forks it where it can't."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from results.errors import StudyExists
from results.records import Machine
from search_spaces.study_values import study_name_problem
from tuner import assembly
from tuner.commands.running import holding, run_study
from tuner.commands.stored import opened, print_report, report_of, told
from tuner.errors import CommandError, Exit
from tuner.fork import inherit
from tuner.identity import Difference, machine_differences, study_differences
from tuner.planners import choose_planner
from tuner.prompt_check import check_prompts
from tuner.same_load import SameLoad
from tuner.sglang_judgement import heeded
from tuner.words import counted

if TYPE_CHECKING:
    from results.store import Store
    from results.studies import NewStudy, StoredStudy
    from runners.base import Runner
    from search_spaces import Study
    from search_spaces.stored_study import StoredFile
    from tuner.assembly import Problem
    from tuner.fork import Inheritance

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
    as_json: bool,
) -> Exit:
    """Goes on with a stored study, or with a fork of it."""
    if fork is None and (launches is not None or hours is not None):
        raise CommandError(
            "a study keeps the budget that it was created with; --fork NEW begins one with "
            "--launches or --hours of its own, with what this one measured"
        )
    with opened(storage, name_or_path) as (store, stored, file):
        read = assembly.stored_study_file(stored, file)
        changed = file if file is not None and file.digest != stored.digest else None
        if fork is not None:
            return _fork(
                store,
                stored,
                read,
                changed,
                name=fork,
                launches=launches,
                hours=hours,
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
    notes = [f"today's checks refuse its stored file: {told(p)}" for p in read.problems]
    found: list[Difference] = []
    if file is not None:
        found += study_differences(study, file, simulated=stored.simulated)
        notes += _not_taken(shown, found)
        found = [difference for difference in found if difference.matters]
        _refuse(stored, found, shown)
    if stored.stopped in _FINISHED:
        sys.stderr.write(
            f"study {stored.name} is finished already: {stored.stop_reason}; `tuner resume "
            f"--study {shown} --fork NEW --launches N` goes on from it\n"
        )
        for note in notes:
            sys.stderr.write(f"note: {note}\n")
        _, report = report_of(store, stored, study)
        print_report(report, as_json=as_json)
        return Exit.DONE
    _refuse_unread(stored, read)
    check_prompts(study)
    servers = assembly.reopen_servers(store, stored, study)
    if (missing := servers.check()) is not None:
        raise CommandError(missing)
    problem = assembly.pose(study, servers, hot_switch=stored.hot_switch)
    differences, machine_notes = _of_machine(store, stored, servers)
    found += differences
    if problem.space.digest != stored.space_digest:
        message = "space: this version of the tuner makes another one of the stored file"
        found.append(Difference("space", message))
    found += _of_load(store, stored, study, servers)
    _refuse(stored, found, shown)
    problem = heeded(
        problem,
        servers,
        hot_switch=stored.hot_switch,
        study=stored.name,
        storage=store.shown,
    )
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


def _fork(
    store: Store,
    stored: StoredStudy,
    read: StoredFile,
    file: Study | None,
    *,
    name: str,
    launches: int | None,
    hours: float | None,
    wait: bool,
    as_json: bool,
) -> Exit:
    if (wrong := study_name_problem(name)) is not None:
        raise CommandError(f"--fork {name!r}: {wrong}")
    if hours is not None and not 0 < hours < float("inf"):
        raise CommandError(f"--hours {hours:g}: it must be above 0")
    if name in {study.name for study in store.studies()}:
        raise CommandError(
            f"a study named {name!r} is stored already; `tuner resume --study {name}` goes on "
            "with it, or give the fork another name"
        )
    old = read.study
    study = file or old
    if file is None:
        _refuse_unread(stored, read)
    check_prompts(study)
    # Whoever gave another runner at `sweep` meant it, unless the file has another one now.
    kind = stored.runner if study.runner == old.runner else study.runner
    past = store.launches(stored.id)
    servers = assembly.make_servers(kind, study, seed=stored.seed, first_launch=len(past))
    if (missing := servers.check()) is not None:
        raise CommandError(missing)
    problem = assembly.pose(study, servers, hot_switch=stored.hot_switch)
    problem = heeded(problem, servers, hot_switch=stored.hot_switch)
    differences = [*study_differences(old, study, simulated=servers.simulated)]
    of_machine, notes = _of_machine(store, stored, servers)
    differences += of_machine
    if all(difference.part != "workload" for difference in differences):
        differences += _of_load(store, stored, study, servers)
    inheritance = inherit(
        store.trials(stored.id),
        past,
        study=study,
        space=problem.space,
        baselines=problem.baselines,
        differences=differences,
        caller=os.environ,
    )
    new = _describe(problem, servers, stored, file, name=name, launches=launches, hours=hours)
    with holding(servers, name, store.shown, wait=wait) as held:
        try:
            forked = store.fork(stored.id, new, inheritance.trials)
        except StudyExists as error:
            raise CommandError(f"{error}; give the fork another name") from error
        _tell(store, stored, forked, inheritance, differences)
        locks = contextlib.nullcontext(held)
        return run_study(store, forked, problem, servers, locks=locks, notes=notes, as_json=as_json)


def _describe(
    problem: Problem,
    servers: Runner,
    stored: StoredStudy,
    file: Study | None,
    *,
    name: str,
    launches: int | None,
    hours: float | None,
) -> NewStudy:
    """The fork: the file's budget where a changed one was given, else what the study was given."""
    if file is None:
        launches = launches if launches is not None else stored.budget_launches
        hours = hours if hours is not None else stored.budget_hours
    budget = launches if launches is not None else problem.study.budget.launches
    planner = stored.planner
    if planner == "exhaustive":
        planner = choose_planner(
            problem.space, problem.launches, budget, problem.baselines.values()
        )
    return assembly.describe_new(
        problem,
        servers,
        name=name,
        seed=stored.seed,
        planner=planner,
        hot_switch=stored.hot_switch,
        launches=budget,
        hours=hours,
    )


def _of_machine(
    store: Store, stored: StoredStudy, servers: Runner
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """What of engine and machine differs from where the study was measured."""
    known = [x.machine for x in store.launches(stored.id) if x.machine is not None]
    now = servers.machine()
    if not known:
        # Of a database older than these facts, or before the first launch.
        return machine_differences(Machine(sglang=stored.sglang_version), now, uses_gpus=False)
    uses_gpus = servers.devices() != ("cpu",)
    found, _ = machine_differences(known[0], now, uses_gpus=uses_gpus)
    # What only deserves a word is told once: compared with the last launch.
    _, notes = machine_differences(known[-1], now, uses_gpus=uses_gpus)
    return found, notes


def _of_load(
    store: Store, stored: StoredStudy, study: Study, servers: Runner
) -> tuple[Difference, ...]:
    """Whether the prompts that would be sent are others, whatever the file says."""
    changed = SameLoad(stored, store).changed(servers, study.to_workload())
    return (
        () if changed is None else (Difference("workload", f"workload: the prompts at {changed}"),)
    )


def _refuse_unread(stored: StoredStudy, read: StoredFile) -> None:
    """Raises where launches would be of another study than the stored one."""
    if read.unread:
        lines = "\n".join(f"  {told(problem)}" for problem in read.unread)
        raise CommandError(
            f"study {stored.name} cannot go on: this version does not understand all of its "
            f"stored file\n{lines}\n`tuner show` and `tuner export` still tell what it measured; "
            "go on with the version of the tuner that began it, or with a corrected copy of its "
            "file: `tuner resume --study FILE --fork NEW`"
        )


def _refuse(stored: StoredStudy, found: list[Difference], shown: str) -> None:
    """Raises where figures from before and after could not stand in one study."""
    if not found:
        return
    lines = "\n".join(f"  {difference.message}" for difference in found)
    raise CommandError(
        f"study {stored.name} cannot go on: its figures would not be comparable\n{lines}\n"
        f"Bring back what it was measured with, or begin another study with what still holds of "
        f"it: `tuner resume --study {shown} --fork NEW`"
    )


def _not_taken(shown: str, found: list[Difference]) -> list[str]:
    """What is said where the study goes on with its stored file although the given one differs."""
    if any(difference.matters for difference in found):
        return []
    if not found:
        return [f"{shown} was changed, but only in comments or spelling; the stored file counts"]
    return [
        f"{difference.message}: what the study was created with counts; `tuner resume --study "
        f"{shown} --fork NEW` takes the file's"
        for difference in found
    ]


def _tell(
    store: Store,
    stored: StoredStudy,
    forked: StoredStudy,
    inheritance: Inheritance,
    differences: list[Difference],
) -> None:
    """Says what a fork took over, and why not the rest."""
    trials, launches = len(inheritance.trials), len(store.launches(forked.id))
    lines = [
        f"study {forked.name} goes on from {stored.name}: {trials} of its trials "
        f"{'holds' if trials == 1 else 'hold'}, of {counted(launches, 'launch')} that need not be "
        "made again"
        if trials
        else f"study {forked.name} begins anew: nothing of {stored.name} holds"
    ]
    lines += [f"  changed: {difference.message}" for difference in differences]
    lines += [f"  left out: {count} {why}" for why, count in inheritance.left.items()]
    sys.stderr.write("\n".join(lines) + "\n")
