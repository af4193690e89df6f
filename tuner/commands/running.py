"""`tuner sweep` and `tuner resume`."""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import TYPE_CHECKING

from results.errors import StoreError, StudyExists
from results.store import Store
from runners.base import RunnerError
from search_spaces import load_study, warnings
from search_spaces.study_values import study_name_problem
from tuner import assembly
from tuner.commands.dry_run import dry_run
from tuner.commands.stored import existing, exit_code, print_report, report_of
from tuner.errors import CommandError, Exit
from tuner.interrupts import Interrupts
from tuner.leftovers import end_leftovers
from tuner.progress import Lines
from tuner.prompt_check import check_prompts
from tuner.sweep import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.studies import StoredStudy
    from runners.base import Runner
    from tuner.assembly import Problem
    from tuner.launching import Launcher
    from tuner.mirror import Mirror


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
    as_json: bool,
) -> Exit:
    """Creates a study and runs it."""
    if name is not None and (wrong := study_name_problem(name)) is not None:
        raise CommandError(f"--name {name!r}: {wrong}")
    if hours is not None and not 0 < hours < float("inf"):
        raise CommandError(f"--hours {hours:g}: it must be above 0")
    study = load_study(name_or_path)
    check_prompts(study)
    kind = runner or study.runner
    servers = assembly.make_servers(kind, study, seed=seed)
    problem = assembly.pose(study, servers, hot_switch=hot_switch)
    new = assembly.describe_new(
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
        dry_run(problem, servers, new.planner, new.budget_launches, as_json=as_json)
        return Exit.DONE
    if (missing := servers.check()) is not None:
        raise CommandError(missing)
    with Store.open(storage) as store:
        if store.in_memory:
            raise CommandError(
                f"--storage {storage} keeps nothing; name a file, such as sqlite:///tuner.db"
            )
        try:
            stored = store.create_study(new)
        except StudyExists as error:
            raise CommandError(
                f"{error}. `tuner resume --study {new.name}` goes on with it; "
                f"`tuner sweep --study {name_or_path} --name NAME` begins another one."
            ) from error
        return _run(store, stored, problem, servers, as_json=as_json)


def resume(name_or_path: str, *, storage: str, take_over: bool, as_json: bool) -> Exit:
    """Goes on with a stored study."""
    with existing(storage, name_or_path) as (store, stored, study):
        if stored.stopped in {"exhausted", "budget", "converged"}:
            sys.stderr.write(f"study {stored.name} is finished already: {stored.stop_reason}\n")
            _, report = report_of(store, stored, study)
            print_report(report, as_json=as_json)
            return Exit.DONE
        check_prompts(study)
        servers = assembly.reopen_servers(store, stored, study)
        if (missing := servers.check()) is not None:
            raise CommandError(missing)
        problem = assembly.pose(study, servers, hot_switch=stored.hot_switch)
        if problem.space.digest != stored.space_digest:
            raise CommandError(
                f"the space of study {stored.name} is not what this version of the tuner makes "
                f"of its file; begin another study with `tuner sweep --name NAME`"
            )
        return _run(store, stored, problem, servers, take_over=take_over, as_json=as_json)


def _run(
    store: Store,
    stored: StoredStudy,
    problem: Problem,
    servers: Runner,
    *,
    take_over: bool = False,
    as_json: bool,
) -> Exit:
    launcher: Launcher | None = None

    def end_at_once() -> None:
        if launcher is not None and launcher.running is not None:
            servers.end_leftover(launcher.running)

    store.claim(stored.id, take_over=take_over)
    go_on = f"`tuner resume --study {stored.name}`"
    progress = Lines(simulated=stored.simulated)
    try:
        with (
            Interrupts(end_at_once, f"; {go_on} cleans up and goes on") as interrupts,
            _mirrored(store, stored, problem, progress) as mirror,
        ):
            _clean_up(store, stored, servers, progress)
            store.stop_study(stored.id, None, None)
            for note in (*problem.notes, *warnings(problem.study)):
                progress.message(f"note: {note}")
            loop, launcher = assembly.make_sweep(
                problem,
                stored,
                store,
                servers,
                progress,
                mirror=mirror,
                shielded=interrupts.shielded,
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
    report = assembly.make_report(store, stored.name, problem, servers)
    if as_json and outcome.stopped in {"interrupted", "fault"}:
        progress.message(f"stopped: {outcome.reason}")
    print_report(report, as_json=as_json)
    return exit_code(report)


def _clean_up(store: Store, stored: StoredStudy, servers: Runner, progress: Lines) -> None:
    """Ends what a killed run left, and says so."""
    for launch, ended in end_leftovers(store, stored.id, servers):
        left = f"; {ended} of its processes were still alive and are ended" if ended else ""
        process = launch.process
        if process is not None and process.host not in {"", socket.gethostname()}:
            left = f"; see that nothing of it lives on {process.host}, out of reach from here"
        progress.message(f"launch {launch.id} was lost when the tuner was killed{left}")


@contextlib.contextmanager
def _mirrored(
    store: Store, stored: StoredStudy, problem: Problem, progress: Lines
) -> Iterator[Mirror | None]:
    """Optuna's view of the study; without it, and with a word, where its tables can't be used."""
    from results.optuna_mirror import OptunaMirror  # noqa: PLC0415 - imports optuna
    from tuner.mirror import Mirror  # noqa: PLC0415

    try:
        optuna_mirror = OptunaMirror(store.url, stored.name)
    except StoreError as error:
        progress.message(f"going on without Optuna's tables: {error}")
        yield None
        return
    with optuna_mirror:
        yield Mirror(optuna_mirror, problem.space, progress.message)
