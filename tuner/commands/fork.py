"""`tuner resume --fork`: create a study that reuses valid results of another one."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from results.errors import StudyExists
from results.records import Machine
from runners.base import devices_of, machine_of
from search_spaces.simulated_acceptance import undeclared_simulation
from search_spaces.study_file.document import dotted
from tuner.commands.run import check_options, holding, run_study
from tuner.commands.show import problem_line
from tuner.errors import CommandError, Exit
from tuner.formatting import counted
from tuner.loop.same_load import SameLoad
from tuner.planners.registry import AUTO, auto_planner
from tuner.preflight.sglang import apply_preflight
from tuner.preflight.workload import check_prompts
from tuner.studies import assembly
from tuner.studies.differences import Difference, machine_differences, study_differences
from tuner.studies.fork import inherit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from results.store import Store
    from results.studies import NewStudy, StoredStudy
    from runners.base import Runner
    from search_spaces.study_file.load import StoredFile
    from search_spaces.study_file.study import Study
    from tuner.studies.assembly import TuningProblem
    from tuner.studies.fork import Inheritance


def differences_of_machine(
    store: Store, stored: StoredStudy, servers: Runner
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """Differences between this machine and the one that measured the study, and notes."""
    known = [x.machine for x in store.launches(stored.id) if x.machine is not None]
    now = machine_of(servers)
    if not known:
        # No launch yet, or a database that is older than machine facts.
        return machine_differences(Machine(sglang=stored.sglang_version), now, uses_gpus=False)
    uses_gpus = devices_of(servers) != ("cpu",)
    found, _ = machine_differences(known[0], now, uses_gpus=uses_gpus)
    # Notes compare with the last launch, so that each is printed once.
    _, notes = machine_differences(known[-1], now, uses_gpus=uses_gpus)
    return found, notes


def differences_of_load(
    store: Store, stored: StoredStudy, study: Study, servers: Runner
) -> tuple[Difference, ...]:
    """Differences between the prompts sent now and the prompts measured before."""
    changed = SameLoad(stored, store).changed(servers, study.to_workload())
    return (
        () if changed is None else (Difference("workload", f"workload: the prompts at {changed}"),)
    )


def refuse_unread(stored: StoredStudy, read: StoredFile) -> None:
    """Raise if this version does not understand the whole stored study file."""
    if read.unread:
        lines = "\n".join(f"  {problem_line(problem)}" for problem in read.unread)
        raise CommandError(
            f"study {stored.name} cannot continue: this version does not understand its stored "
            f"study file\n{lines}\nUse the version of the tuner that created the study, or fork it "
            "with a corrected study file: `tuner resume --study FILE --fork NEW`. `tuner show` and "
            "`tuner export` still work."
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
    """Create the fork and run it to its target.

    Args:
        store: The open database.
        stored: The study to fork.
        read: Its stored study file, as this version understands it.
        file: The study file given on the command line, if it differs from the stored one.
        name: Name of the fork.
        launches: Launch budget. `None`: from the file or the stored study.
        hours: Budget in hours. `None`: from the file or the stored study.
        no_hot_switch: Launch every setting separately; reuse only results measured that way.
        wait: Wait while another tuner holds the devices.
        as_json: Print the report as JSON.
    """
    check_options("--fork", name, hours)
    if name in {study.name for study in store.studies()}:
        raise CommandError(
            f"study {name!r} exists already; choose another name, or continue it with "
            f"`tuner resume --study {name}`"
        )
    old = read.study
    study = file or old
    if file is None:
        refuse_unread(stored, read)
        for path, message in undeclared_simulation(study):
            raise CommandError(
                f"study {stored.name} cannot be forked unchanged: {dotted(path)}: {message}. "
                f"Then run `tuner resume --study FILE --fork {name}` with the changed file"
            )
    file_notes = check_prompts(study)
    # Keep the runner that `sweep --runner` chose, unless the file now names another one.
    kind = stored.runner if study.runner == old.runner else study.runner
    past = store.launches(stored.id)
    servers = assembly.make_servers(kind, study, seed=stored.seed, first_launch=len(past))
    if (missing := servers.check()) is not None:
        raise CommandError(missing)
    hot_switch = stored.hot_switch and not no_hot_switch
    problem = assembly.build_problem(study, servers, hot_switch=hot_switch, notes=file_notes)
    problem = apply_preflight(problem, servers)
    problem = assembly.forecast(problem, servers)
    lengths = assembly.equal_lengths(study)
    differences = study_differences(old, study, simulated=servers.simulated)
    of_machine, machine_notes = differences_of_machine(store, stored, servers)
    notes = machine_notes if lengths is None else (lengths, *machine_notes)
    differences += of_machine
    if all(difference.part != "workload" for difference in differences):
        differences += differences_of_load(store, stored, study, servers)
    inheritance = inherit(
        assembly.make_leaderboard(store, stored, old).trials,
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
        _print_reuse(store, stored, forked, inheritance, differences)
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
    """The fork, with the budget of the changed file if one was given, else the stored budget."""
    if file is None:
        launches = launches if launches is not None else stored.budget_launches
        hours = hours if hours is not None else stored.budget_hours
    return assembly.describe_new(
        problem,
        servers,
        name=name,
        seed=stored.seed,
        planner=AUTO if stored.planner == auto_planner("all") else stored.planner,
        hot_switch=problem.launches.hot_switch,
        launches=launches,
        hours=hours,
    )


def _print_reuse(
    store: Store,
    stored: StoredStudy,
    forked: StoredStudy,
    inheritance: Inheritance,
    differences: Iterable[Difference],
) -> None:
    """Print what the fork reuses and why it does not reuse other results."""
    trials, launches = len(inheritance.trials), len(store.launches(forked.id))
    lines = [
        f"study {forked.name} reuses {counted(trials, 'trial')} from "
        f"{counted(launches, 'launch')} of {stored.name}"
        if trials
        else f"study {forked.name} reuses no result of {stored.name}"
    ]
    lines += [f"  changed: {difference.message}" for difference in differences]
    lines += [f"  not reused: {count} {why}" for why, count in inheritance.left.items()]
    sys.stderr.write("\n".join(lines) + "\n")
