"""`tuner sweep`: create a study and run it. `resume` and `fork` run studies through `run_study`."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from typing import TYPE_CHECKING

from results.errors import StoreError, StudyBusy, StudyExists
from results.store import Store
from runners.base import RunnerError, devices_of
from runners.process.gpu_locks import (
    FOLDER_VARIABLE,
    DeviceBusyError,
    DeviceLocks,
    LeftServerError,
)
from search_spaces.study_file.load import load_study
from search_spaces.study_file.values import study_name_problem
from search_spaces.study_file.warnings import warnings
from tuner.commands.dry_run import dry_run
from tuner.commands.show import exit_code, print_report
from tuner.errors import CommandError, Exit, copyable
from tuner.formatting import counted, fixed_names
from tuner.loop.interrupts import Interrupts
from tuner.loop.leftovers import end_leftovers, seconds_seen
from tuner.loop.progress import Lines
from tuner.loop.sweep import Outcome
from tuner.preflight.sglang import apply_preflight
from tuner.preflight.workload import check_prompts
from tuner.reports.build_report import make_report
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
    """Create a study and run it."""
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
        problem = apply_preflight(problem, servers, quick=True)
        problem = assembly.forecast(problem, servers)
        dry_run(problem, servers, described(problem), as_json=as_json)
        return Exit.DONE
    if (missing := servers.check()) is not None:
        raise CommandError(missing)
    # Lock the devices first, so that a study that cannot start is not created.
    with (
        Store.open(storage) as store,
        holding(servers, name or study.name, store.shown, wait=wait) as held,
    ):
        if store.in_memory:
            raise CommandError(
                f"--storage {store.shown} is an in-memory database and would be lost; use a file, "
                "for example sqlite:///tuner.db"
            )
        problem = apply_preflight(problem, servers, held=True)
        problem = assembly.forecast(problem, servers)
        try:
            stored = store.create_study(described(problem))
        except StudyExists as error:
            raise CommandError(
                f"{error}. Continue it with `tuner resume --study {name or study.name}`, or create "
                f"another study with `tuner sweep --study {name_or_path} --name NAME`."
            ) from error
        locks = contextlib.nullcontext(held)
        return run_study(store, stored, problem, servers, locks=locks, as_json=as_json)


def check_options(option: str, name: str | None, hours: float | None) -> None:
    """Check a study name and a budget in hours.

    Args:
        option: The option that gave the name, for the message.
        name: Study name, if given.
        hours: Value of `--hours`, if given.

    Raises:
        CommandError: The name or the budget is not valid.
    """
    if name is not None and (wrong := study_name_problem(name)) is not None:
        raise CommandError(f"{option} {name!r}: {wrong}")
    if hours is not None and not 0 < hours < float("inf"):
        raise CommandError(f"--hours {hours:g} is not valid; use a number above 0")


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
    """Run a stored study to its target and print the report.

    Args:
        store: The open database.
        stored: The study.
        problem: Its search space, baselines and launch builder.
        servers: The runner.
        take_over: Replace an owner on another machine.
        wait: Wait while another tuner runs this study.
        locks: Device locks, entered after this tuner owns the study.
        notes: Notes to print before those of `problem`.
        as_json: Print the report as JSON.

    Raises:
        CommandError: The study could not run, or stopped on a fault.
    """
    launcher: Launcher | None = None

    def end_at_once() -> None:
        if launcher is not None and launcher.running is not None:
            servers.end_leftover(launcher.running)

    _claim(store, stored, take_over=take_over, wait=wait)
    resume = f"`tuner resume --study {stored.name}`"
    progress = Lines(simulated=stored.simulated, fixed=fixed_names(problem.study))
    try:
        with (
            locks as held,
            Interrupts(end_at_once, copyable(f"; {resume} cleans up and continues")) as interrupts,
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
        outcome = Outcome(
            "interrupted", f"interrupted before the first launch; continue with {resume}"
        )
        store.stop_study(stored.id, outcome.stopped, outcome.reason)
    except StoreError as error:
        raise CommandError(str(error), Exit.FAULT) from error
    except RunnerError as error:
        # A leftover of an earlier launch still runs and would disturb every measurement.
        raise CommandError(
            f"{error.failure.message}. Stop it by hand, then run {resume}", Exit.FAULT
        ) from error
    finally:
        progress.done()
        # If the release fails, the study belongs to a dead process and can be claimed.
        with contextlib.suppress(StoreError):
            store.release(stored.id)
    report = make_report(store, stored.name, problem.study, servers)
    if as_json and outcome.stopped in {"interrupted", "fault"}:
        progress.message(f"stopped: {outcome.reason}")
    print_report(report, as_json=as_json)
    return exit_code(report)


def _claim(store: Store, stored: StoredStudy, *, take_over: bool, wait: bool) -> None:
    announced = False
    while True:
        try:
            return store.claim(stored.id, take_over=take_over)
        except StudyBusy as error:
            # Whether a process on another machine still runs cannot be seen from here.
            if error.host != socket.gethostname():
                raise
            if not wait:
                raise CommandError(f"{error}; use --wait to wait for it") from error
            if not announced:
                sys.stderr.write(f"waiting for the tuner with pid {error.pid}\n")
                announced = True
            time.sleep(_POLL_S)


@contextlib.contextmanager
def holding(servers: Runner, study: str, storage: str, *, wait: bool) -> Iterator[DeviceLocks]:
    """Lock the devices that the servers use.

    Raises:
        CommandError: Another tuner holds a device and `wait` is false.
    """

    def tell(busy: DeviceBusyError) -> None:
        sys.stderr.write(f"waiting: {busy}\n")

    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(
                DeviceLocks(devices_of(servers), study, storage, waiting=tell if wait else None)
            )
        except LeftServerError as error:
            raise CommandError(str(error)) from error
        except DeviceBusyError as error:
            raise CommandError(f"{error}. Wait for it with --wait, or stop it") from error
        except OSError as error:
            raise CommandError(
                f"cannot lock the devices: {error}; set {FOLDER_VARIABLE} to a writable folder"
            ) from error
        yield held


def _clean_up(store: Store, stored: StoredStudy, servers: Runner, progress: Lines) -> None:
    """Stop servers that a killed run left behind, and report them."""
    for launch, ended in end_leftovers(store, stored.id, servers):
        # The killed run could not store this time, but it counts as running time.
        store.add_work(stored.id, seconds_seen(launch) * servers.time_scale)
        left = f"; stopped {counted(ended, 'process')} of it" if ended else ""
        process = launch.process
        if process is not None and process.host not in {"", socket.gethostname()}:
            left = f"; check that none of its processes still runs on {process.host}"
        progress.message(f"launch {launch.id} was lost because the tuner was killed{left}")


@contextlib.contextmanager
def _mirrored(
    store: Store, stored: StoredStudy, problem: TuningProblem, progress: Lines
) -> Iterator[Mirror | None]:
    """Mirror the study to Optuna's tables; continue without them if they cannot be used."""
    from results.optuna_mirror import OptunaMirror  # noqa: PLC0415 - imports optuna
    from tuner.loop.optuna_mirror import Mirror  # noqa: PLC0415

    try:
        optuna_mirror = OptunaMirror(store.url, stored.name)
    except StoreError as error:
        progress.message(f"continuing without Optuna's tables: {error}")
        yield None
        return
    with optuna_mirror:
        yield Mirror(optuna_mirror, problem.space, progress.message)
