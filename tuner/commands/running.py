"""`tuner sweep` and `tuner resume`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from results.errors import StudyExists
from results.records import LaunchState, ProcessIdentity
from results.store import Store
from search_spaces import load_study, warnings
from tuner import assembly
from tuner.commands.dry_run import dry_run
from tuner.commands.stored import existing, exit_code, print_report, report_of
from tuner.errors import CommandError, Exit
from tuner.interrupts import Interrupts
from tuner.progress import Lines

if TYPE_CHECKING:
    from results.studies import StoredStudy
    from runners.base import Runner
    from tuner.assembly import Problem
    from tuner.launching import Launcher


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
    study = load_study(name_or_path)
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
        try:
            stored = store.create_study(new)
        except StudyExists as error:
            raise CommandError(
                f"{error}. `tuner resume --study {new.name}` goes on with it; "
                f"`tuner sweep --study {name_or_path} --name NAME` begins another one."
            ) from error
        return _run(store, stored, problem, servers, as_json=as_json)


def resume(name_or_path: str, *, storage: str, as_json: bool) -> Exit:
    """Goes on with a stored study."""
    with existing(storage, name_or_path) as (store, stored, study):
        if stored.stopped in {"exhausted", "budget", "converged"}:
            sys.stderr.write(f"study {stored.name} is finished already: {stored.stop_reason}\n")
            _, report = report_of(store, stored, study)
            print_report(report, as_json=as_json)
            return exit_code(report)
        servers = assembly.reopen_servers(store, stored, study)
        if (missing := servers.check()) is not None:
            raise CommandError(missing)
        problem = assembly.pose(study, servers, hot_switch=stored.hot_switch)
        if problem.space.digest != stored.space_digest:
            raise CommandError(
                f"the space of study {stored.name} is not what this version of the tuner makes "
                f"of its file; begin another study with `tuner sweep --name NAME`"
            )
        return _run(store, stored, problem, servers, as_json=as_json)


def _run(
    store: Store, stored: StoredStudy, problem: Problem, servers: Runner, *, as_json: bool
) -> Exit:
    from results.optuna_mirror import OptunaMirror  # noqa: PLC0415 - imports optuna
    from tuner.mirror import Mirror  # noqa: PLC0415

    progress = Lines(simulated=stored.simulated)
    launcher: Launcher | None = None

    def end_at_once() -> None:
        if launcher is not None and launcher.running is not None:
            servers.end_leftover(launcher.running)

    store.claim(stored.id)
    try:
        with (
            Interrupts(end_at_once) as interrupts,
            OptunaMirror(store.url, stored.name) as optuna_mirror,
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
                mirror=Mirror(optuna_mirror, problem.space, progress.message),
                shielded=interrupts.shielded,
            )
            outcome = loop.run()
    finally:
        progress.done()
        store.release(stored.id)
    report = assembly.make_report(store, stored.name, problem, servers)
    if outcome.stopped in {"interrupted", "fault"}:
        sys.stderr.write(f"stopped: {outcome.reason}\n")
    print_report(report, as_json=as_json)
    return exit_code(report)


def _clean_up(store: Store, stored: StoredStudy, servers: Runner, progress: Lines) -> None:
    """Ends what a killed run left; its unfinished trials are taken up by the agenda."""
    for launch in store.unfinished(stored.id).launches:
        # Killed before the process was recorded: its mark alone has to do.
        process = launch.process or ProcessIdentity(0, 0.0, launch.intent.mark, 0)
        ended = servers.end_leftover(process)
        store.finish_launch(stored.id, launch.id, LaunchState.LOST, None)
        left = f", {len(ended)} processes of it ended" if ended else ""
        progress.message(f"launch {launch.id} was lost when the tuner was killed{left}")
