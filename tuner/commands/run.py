"""`tuner sweep`, and what runs a study that is stored."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from typing import TYPE_CHECKING

from results.errors import StoreError, StudyBusy, StudyExists
from results.store import Store
from runners.base import RunnerError
from runners.process.gpu_locks import (
    FOLDER_VARIABLE,
    DeviceBusyError,
    DeviceLocks,
    LeftServerError,
)
from search_spaces.study_file.study import load_study
from search_spaces.study_file.values import study_name_problem
from search_spaces.study_file.warnings import warnings
from tuner.commands.dry_run import dry_run
from tuner.commands.show import exit_code, print_report
from tuner.errors import CommandError, Exit, copyable
from tuner.formatting import fixed_names
from tuner.loop.interrupts import Interrupts
from tuner.loop.leftovers import end_leftovers, seconds_seen
from tuner.loop.progress import Lines
from tuner.loop.sweep import Outcome
from tuner.preflight.sglang import heeded
from tuner.preflight.workload import check_prompts
from tuner.studies import assembly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from results.studies import NewStudy, StoredStudy
    from runners.base import Runner
    from tuner.loop.launching import Launcher
    from tuner.loop.optuna_mirror import Mirror
    from tuner.studies.assembly import TuningProblem

_POLL_S = 1.0


def sweep(
    name_or_path: str,
    *,
    runner: str | None,
    storage: str,
    name: str | None,
    launches: int | None,
    hours: float | None,
    seed: int,
    planner: str,
    hot_switch: bool,
    dry: bool,
    wait: bool,
    as_json: bool,
) -> Exit:
    """Creates a study and runs it."""
    check_options("--name", name, hours)
    study = load_study(name_or_path)
    notes = check_prompts(study)
    kind = runner or study.runner
    servers = assembly.make_servers(kind, study, seed=seed)
    problem = assembly.build_problem(study, servers, hot_switch=hot_switch, notes=notes)

    def described(problem: TuningProblem) -> NewStudy:
        return assembly.describe_new(
            problem,
            servers,
            name=name or study.name,
            seed=seed,
            planner=planner,
            hot_switch=hot_switch,
            launches=launches,
            hours=hours,
        )

    if dry:
        problem = heeded(problem, servers, quick=True)
        problem = assembly.forecast(problem, servers)
        dry_run(problem, servers, described(problem), as_json=as_json)
        return Exit.DONE
    if (missing := servers.check()) is not None:
        raise CommandError(missing)
    # The devices first: a study that cannot begin is not created.
    with (
        Store.open(storage) as store,
        holding(servers, name or study.name, store.shown, wait=wait) as held,
    ):
        if store.in_memory:
            raise CommandError(
                f"--storage {store.shown} keeps nothing; name a file, such as sqlite:///tuner.db"
            )
        problem = heeded(problem, servers, held=True)
        problem = assembly.forecast(problem, servers)
        try:
            stored = store.create_study(described(problem))
        except StudyExists as error:
            raise CommandError(
                f"{error}. `tuner resume --study {name or study.name}` goes on with it; "
                f"`tuner sweep --study {name_or_path} --name NAME` begins another one."
            ) from error
        locks = contextlib.nullcontext(held)
        return run_study(store, stored, problem, servers, locks=locks, as_json=as_json)


def check_options(option: str, name: str | None, hours: float | None) -> None:
    """Refuses what no study can be called, or last.

    Args:
        option: The one that gives the name.
        name: Its value, if any.
        hours: That of `--hours`, if any.

    Raises:
        CommandError: With what is wrong.
    """
    if name is not None and (wrong := study_name_problem(name)) is not None:
        raise CommandError(f"{option} {name!r}: {wrong}")
    if hours is not None and not 0 < hours < float("inf"):
        raise CommandError(f"--hours {hours:g}: it must be above 0")


def run_study(
    store: Store,
    stored: StoredStudy,
    problem: TuningProblem,
    servers: Runner,
    *,
    take_over: bool = False,
    wait: bool = False,
    locks: AbstractContextManager[DeviceLocks],
    notes: Sequence[str] = (),
    as_json: bool,
) -> Exit:
    """Runs a stored study to its target, and prints what came of it.

    Args:
        store: The open database.
        stored: The study.
        problem: What it asks.
        servers: Its runner.
        take_over: Replace an owner on another machine.
        wait: Wait for another tuner that works on the study.
        locks: Entered once the study is this tuner's.
        notes: What its user should know beside what `problem` says.
        as_json: Whether the report is JSON.

    Raises:
        CommandError: It could not be run, or stopped on a fault.
    """
    launcher: Launcher | None = None

    def end_at_once() -> None:
        if launcher is not None and launcher.running is not None:
            servers.end_leftover(launcher.running)

    _claim(store, stored, take_over=take_over, wait=wait)
    go_on = f"`tuner resume --study {stored.name}`"
    progress = Lines(simulated=stored.simulated, fixed=fixed_names(problem.study))
    try:
        with (
            locks as held,
            Interrupts(end_at_once, copyable(f"; {go_on} cleans up and goes on")) as interrupts,
            _mirrored(store, stored, problem, progress) as mirror,
        ):
            _clean_up(store, stored, servers, progress)
            store.stop_study(stored.id, None, None)
            for note in (*notes, *problem.notes, *warnings(problem.study)):
                progress.message(f"note: {note}")
            loop, launcher = assembly.make_sweep(
                problem,
                stored,
                store,
                servers,
                progress,
                mirror=mirror,
                shielded=interrupts.shielded,
                announce=held.announce,
            )
            outcome = loop.run()
    except KeyboardInterrupt:
        outcome = Outcome("interrupted", f"by a signal, before its first launch; {go_on} goes on")
        store.stop_study(stored.id, outcome.stopped, outcome.reason)
    except StoreError as error:
        raise CommandError(str(error), Exit.FAULT) from error
    except RunnerError as error:
        # Of ending what an earlier launch left: whatever ran next would be measured beside it.
        raise CommandError(
            f"{error.failure.message}. End it by hand, then {go_on} goes on", Exit.FAULT
        ) from error
    finally:
        progress.done()
        # What is not released belongs to a process that is gone, and can be claimed.
        with contextlib.suppress(StoreError):
            store.release(stored.id)
    report = assembly.make_report(store, stored.name, problem.study, servers)
    if as_json and outcome.stopped in {"interrupted", "fault"}:
        progress.message(f"stopped: {outcome.reason}")
    print_report(report, as_json=as_json)
    return exit_code(report)


def _claim(store: Store, stored: StoredStudy, *, take_over: bool, wait: bool) -> None:
    told = False
    while True:
        try:
            return store.claim(stored.id, take_over=take_over)
        except StudyBusy as error:
            # Of one on another machine it can't be seen when it is gone.
            if error.host != socket.gethostname():
                raise
            if not wait:
                raise CommandError(f"{error}; --wait waits for it") from error
            if not told:
                sys.stderr.write(f"waiting for the tuner that works on it (pid {error.pid})\n")
                told = True
            time.sleep(_POLL_S)


@contextlib.contextmanager
def holding(servers: Runner, study: str, storage: str, *, wait: bool) -> Iterator[DeviceLocks]:
    """What the servers have of this machine, to themselves.

    Raises:
        CommandError: Another tuner has it, and is not waited for.
    """

    def tell(busy: DeviceBusyError) -> None:
        sys.stderr.write(f"waiting: {busy}\n")

    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(
                DeviceLocks(servers.devices(), study, storage, waiting=tell if wait else None)
            )
        except LeftServerError as error:
            raise CommandError(str(error)) from error
        except DeviceBusyError as error:
            raise CommandError(f"{error}. Wait for it (--wait does), or stop it first") from error
        except OSError as error:
            raise CommandError(
                f"the devices cannot be locked against other tuners: {error}; name a folder that "
                f"can be written as {FOLDER_VARIABLE}"
            ) from error
        yield held


def _clean_up(store: Store, stored: StoredStudy, servers: Runner, progress: Lines) -> None:
    """Ends what a killed run left, and says so."""
    for launch, ended in end_leftovers(store, stored.id, servers):
        # The run that was killed could not store it; its launch was work all the same.
        store.add_work(stored.id, seconds_seen(launch) * servers.time_scale)
        were = "was still alive and is" if ended == 1 else "were still alive and are"
        left = f"; {ended} of its processes {were} ended" if ended else ""
        process = launch.process
        if process is not None and process.host not in {"", socket.gethostname()}:
            left = f"; see that nothing of it lives on {process.host}, out of reach from here"
        progress.message(f"launch {launch.id} was lost when the tuner was killed{left}")


@contextlib.contextmanager
def _mirrored(
    store: Store, stored: StoredStudy, problem: TuningProblem, progress: Lines
) -> Iterator[Mirror | None]:
    """Optuna's view of the study; without it, and with a word, where its tables can't be used."""
    from results.optuna_mirror import OptunaMirror  # noqa: PLC0415 - imports optuna
    from tuner.loop.optuna_mirror import Mirror  # noqa: PLC0415

    try:
        optuna_mirror = OptunaMirror(store.url, stored.name)
    except StoreError as error:
        progress.message(f"going on without Optuna's tables: {error}")
        yield None
        return
    with optuna_mirror:
        yield Mirror(optuna_mirror, problem.space, progress.message)
