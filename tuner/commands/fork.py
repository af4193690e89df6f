"""Whether what is measured now may stand beside what a stored study has measured."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from results.errors import StudyExists
from results.records import Machine
from search_spaces.simulated_acceptance import undeclared_simulation
from search_spaces.study_file.yaml_nodes import dotted
from tuner.commands.run import check_options, holding, run_study
from tuner.commands.show import told
from tuner.errors import CommandError, Exit
from tuner.formatting import counted
from tuner.preflight.sglang import heeded
from tuner.preflight.workload import check_prompts
from tuner.studies import assembly
from tuner.studies.fork import inherit
from tuner.studies.identity import Difference, SameLoad, machine_differences, study_differences

if TYPE_CHECKING:
    from collections.abc import Iterable

    from results.store import Store
    from results.studies import NewStudy, StoredStudy
    from runners.base import Runner
    from search_spaces.study_file.stored_study import StoredFile
    from search_spaces.study_file.study import Study
    from tuner.studies.assembly import TuningProblem
    from tuner.studies.fork import Inheritance


def differences_of_machine(
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


def differences_of_load(
    store: Store, stored: StoredStudy, study: Study, servers: Runner
) -> tuple[Difference, ...]:
    """Whether the prompts that would be sent are others, whatever the file says."""
    changed = SameLoad(stored, store).changed(servers, study.to_workload())
    return (
        () if changed is None else (Difference("workload", f"workload: the prompts at {changed}"),)
    )


def refuse_unread(stored: StoredStudy, read: StoredFile) -> None:
    """Raises where launches would be of another study than the stored one."""
    if read.unread:
        lines = "\n".join(f"  {told(problem)}" for problem in read.unread)
        raise CommandError(
            f"study {stored.name} cannot go on: this version does not understand all of its "
            f"stored file\n{lines}\n`tuner show` and `tuner export` still tell what it measured; "
            "go on with the version of the tuner that began it, or with a corrected copy of its "
            "file: `tuner resume --study FILE --fork NEW`"
        )


def start_fork(
    store: Store,
    stored: StoredStudy,
    read: StoredFile,
    file: Study | None,
    *,
    name: str,
    launches: int | None,
    hours: float | None,
    no_hot_switch: bool,
    wait: bool,
    as_json: bool,
) -> Exit:
    """Begins it, and runs it to its own target.

    Args:
        store: The open database.
        stored: What is forked.
        read: Its file, as far as it is understood today.
        file: The file by which it was named, where that was changed since.
        name: The new study's.
        launches: Its budget; `None` is the file's or the stored study's.
        hours: Likewise.
        no_hot_switch: It launches each setting by itself, and takes over only what was.
        wait: Wait for another tuner that has the devices.
        as_json: Whether the report is JSON.
    """
    check_options("--fork", name, hours)
    if name in {study.name for study in store.studies()}:
        raise CommandError(
            f"a study named {name!r} is stored already; `tuner resume --study {name}` goes on "
            "with it, or give the fork another name"
        )
    old = read.study
    study = file or old
    if file is None:
        refuse_unread(stored, read)
        for path, message in undeclared_simulation(study):
            raise CommandError(
                f"study {stored.name} cannot be forked as it is stored: {dotted(path)}: {message}. "
                f"Then run `tuner resume --study FILE --fork {name}` with the changed file"
            )
    file_notes = check_prompts(study)
    # Whoever gave another runner at `sweep` meant it, unless the file has another one now.
    kind = stored.runner if study.runner == old.runner else study.runner
    past = store.launches(stored.id)
    servers = assembly.make_servers(kind, study, seed=stored.seed, first_launch=len(past))
    if (missing := servers.check()) is not None:
        raise CommandError(missing)
    hot_switch = stored.hot_switch and not no_hot_switch
    problem = assembly.build_problem(study, servers, hot_switch=hot_switch, notes=file_notes)
    problem = heeded(problem, servers)
    problem = assembly.forecast(problem, servers)
    lengths = assembly.equal_lengths(study)
    differences = study_differences(old, study, simulated=servers.simulated)
    of_machine, machine_notes = differences_of_machine(store, stored, servers)
    notes = machine_notes if lengths is None else (lengths, *machine_notes)
    differences += of_machine
    if all(difference.part != "workload" for difference in differences):
        differences += differences_of_load(store, stored, study, servers)
    inheritance = inherit(
        assembly.make_standing(store, stored, old).trials,
        past,
        study=study,
        space=problem.space,
        baselines=problem.baselines,
        differences=differences,
        caller=os.environ,
        switched=not no_hot_switch,
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
    problem: TuningProblem,
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
    return assembly.describe_new(
        problem,
        servers,
        name=name,
        seed=stored.seed,
        planner="auto" if stored.planner == "exhaustive" else stored.planner,
        hot_switch=problem.launches.hot_switch,
        launches=launches,
        hours=hours,
    )


def _tell(
    store: Store,
    stored: StoredStudy,
    forked: StoredStudy,
    inheritance: Inheritance,
    differences: Iterable[Difference],
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
