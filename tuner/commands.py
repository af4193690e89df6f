"""What the commands do; `tuner.cli` holds their options."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import StoreMissing, StudyExists, StudyNotFound
from results.records import LaunchState, ProcessIdentity
from results.store import Store
from search_spaces import Space, StudyFileError, load_study, shipped, warnings
from tuner import assembly
from tuner.errors import CommandError, Exit
from tuner.export import dump, export_json, export_shell
from tuner.interrupts import Interrupts
from tuner.progress import Lines
from tuner.words import describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.studies import StoredStudy
    from runners.base import Runner
    from search_spaces import Study
    from tuner.assembly import Problem
    from tuner.launching import Launcher
    from tuner.planners import LaunchPlan
    from tuner.report import StudyReport


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
    dry_run: bool,
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
    if dry_run:
        _dry_run(problem, servers, new.planner, new.budget_launches, as_json=as_json)
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
    with _existing(storage, name_or_path) as (store, stored, study):
        if stored.stopped in {"exhausted", "budget", "converged"}:
            sys.stderr.write(f"study {stored.name} is finished already: {stored.stop_reason}\n")
            _, report = _report(store, stored, study)
            _print(report, as_json=as_json)
            return _code(report)
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
    _print(report, as_json=as_json)
    return _code(report)


def _clean_up(store: Store, stored: StoredStudy, servers: Runner, progress: Lines) -> None:
    """Ends what a killed run left; its unfinished trials are taken up by the agenda."""
    for launch in store.unfinished(stored.id).launches:
        # Killed before the process was recorded: its mark alone has to do.
        process = launch.process or ProcessIdentity(0, 0.0, launch.intent.mark, 0)
        ended = servers.end_leftover(process)
        store.finish_launch(stored.id, launch.id, LaunchState.LOST, None)
        left = f", {len(ended)} processes of it ended" if ended else ""
        progress.message(f"launch {launch.id} was lost when the tuner was killed{left}")


def show(name_or_path: str, *, storage: str, trial: int | None, as_json: bool) -> Exit:
    """Shows a stored study."""
    with _existing(storage, name_or_path) as (store, stored, study):
        _, report = _report(store, stored, study)
        if trial is None:
            _print(report, as_json=as_json)
            return Exit.DONE
        chosen = _trial(report, trial)
        if as_json:
            sys.stdout.write(dump(report.trial_dict(chosen)))
        else:
            from tuner.render import render_trial  # noqa: PLC0415

            render_trial(report, chosen)
        return Exit.DONE


def export(
    name_or_path: str,
    *,
    storage: str,
    format_: str,
    output: Path | None,
    trial: int | None,
    entry: str,
) -> Exit:
    """Exports a trial's launch command, the best one's unless another is named."""
    with _existing(storage, name_or_path) as (store, stored, study):
        servers, report = _report(store, stored, study)
        chosen = report.standing.best if trial is None else _trial(report, trial)
        if chosen is None:
            raise CommandError(
                f"study {stored.name} has no feasible configuration to export; "
                f"`tuner show --study {stored.name}` says why each failed",
                Exit.INFEASIBLE,
            )
        if entry == "simulated":
            if not stored.simulated:
                raise CommandError(f"study {stored.name} was not simulated; leave --entry out")
            command = servers.simulated_command(chosen.configuration)  # type: ignore[attr-defined]
        else:
            command = servers.command(chosen.configuration)
    text = (
        dump(export_json(report, command))
        if format_ == "json"
        else export_shell(report, chosen, command)
    )
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text)
        if format_ == "shell":
            output.chmod(output.stat().st_mode | 0o111)
        sys.stderr.write(f"wrote {output}\n")
    return Exit.DONE


def validate(name_or_path: str, *, as_json: bool) -> Exit:
    """Checks a study file."""
    try:
        study = load_study(name_or_path)
        points = len(Space(study))
    except StudyFileError as error:
        if not as_json:
            raise
        problems = [problem.to_dict() for problem in error.problems]
        sys.stdout.write(dump({"ok": False, "legal_points": None, "errors": problems}))
        return Exit.USAGE
    notes = list(warnings(study))
    if as_json:
        sys.stdout.write(
            dump({"ok": True, "legal_points": points, "errors": [], "warnings": notes})
        )
        return Exit.DONE
    for note in notes:
        sys.stderr.write(f"warning: {note}\n")
    sys.stdout.write(f"study {study.name} is valid: {points} legal configurations\n")
    return Exit.DONE


def spaces(*, as_json: bool) -> Exit:
    """Lists the shipped studies."""
    found = shipped()
    if as_json:
        sys.stdout.write(dump({"studies": [{"name": n, "about": about} for n, about in found]}))
        return Exit.DONE
    width = max(len(name) for name, _ in found)
    for name, about in found:
        sys.stdout.write(f"{name:<{width}}  {about}\n")
    return Exit.DONE


def _dry_run(
    problem: Problem, servers: Runner, planner: str, budget: int | None, *, as_json: bool
) -> None:
    from results.records import Purpose  # noqa: PLC0415
    from runners.sglang_command import shell  # noqa: PLC0415
    from tuner.planners import PlannedTrial  # noqa: PLC0415

    known = {c.key for c in problem.baselines.values()}
    firsts: list[tuple[str, LaunchPlan]] = []
    for name, configuration in problem.baselines.items():
        plan = problem.launches.plan(PlannedTrial(configuration, Purpose.BASELINE), known)
        known |= {t.configuration.key for t in plan.trials}
        firsts.append((name, plan))
    points = len(problem.space)
    needed = problem.launches.launches_needed(problem.space.points) if points <= 10_000 else None
    if as_json:
        data: dict[str, Any] = {
            "study": problem.study.name,
            "simulated": servers.simulated,
            "legal_points": points,
            "planner": planner,
            "budget": {"launches": budget},
            "launches_for_all_points": needed,
            "baselines": {
                name: {
                    "configuration": plan.trials[0].configuration.to_dict(),
                    "command": shell(servers.command(plan.trials[0].configuration)),
                }
                for name, plan in firsts
            },
            "notes": list(problem.notes),
        }
        sys.stdout.write(dump(data))
        return
    out = sys.stdout.write
    out(f"study {problem.study.name}: {points} legal configurations, planner {planner}, ")
    out(f"at most {budget} launches")
    out(f" ({needed} would measure them all)\n" if needed is not None else "\n")
    for note in problem.notes:
        out(f"note: {note}\n")
    for name, plan in firsts:
        out(f"\nfirst, baseline '{name}': {describe(plan.trials[0].configuration)}")
        if len(plan.trials) > 1:
            out(f", and in the same launch {len(plan.trials) - 1} more settings")
        out(f"\n  {shell(servers.command(plan.trials[0].configuration))}\n")


def bench(
    url: str,
    *,
    concurrency: int,
    requests: int | None,
    output_tokens: int,
    prompts: str,
    seed: int,
    as_json: bool,
) -> Exit:
    """Measures a running server once."""
    from tuner.bench import bench as measure  # noqa: PLC0415

    return measure(
        url,
        concurrency=concurrency,
        requests=requests,
        output_tokens=output_tokens,
        prompts=prompts,
        seed=seed,
        as_json=as_json,
    )


def doctor(*, storage: str, as_json: bool) -> Exit:
    """Checks this machine."""
    from tuner.doctor import doctor as check  # noqa: PLC0415

    return check(storage=storage, as_json=as_json)


@contextlib.contextmanager
def _existing(storage: str, name_or_path: str) -> Iterator[tuple[Store, StoredStudy, Study]]:
    """A stored study by its name, or by a file that it was made from."""
    file = load_study(name_or_path) if _is_path(name_or_path) else None
    name = file.name if file is not None else name_or_path
    try:
        store = Store.open(storage, create=False)
    except StoreMissing as error:
        raise CommandError(f"{error}; `tuner sweep --study {name_or_path}` begins it") from error
    with store:
        try:
            stored = store.study(name)
        except StudyNotFound as error:
            others = ", ".join(s.name for s in store.studies()) or "none"
            raise CommandError(
                f"{error}; stored there: {others}. `tuner sweep --study {name}` begins it."
            ) from error
        if file is not None and file.digest != stored.digest:
            raise CommandError(
                f"{name_or_path} is not the file that study {name} was created from. "
                f"`tuner resume --study {name}` goes on with the stored one; "
                f"`tuner sweep --study {name_or_path} --name NAME` begins another."
            )
        yield store, stored, assembly.stored_study_file(stored)


def _is_path(name_or_path: str) -> bool:
    return "/" in name_or_path or Path(name_or_path).suffix in {".yaml", ".yml"}


def _report(store: Store, stored: StoredStudy, study: Study) -> tuple[Runner, StudyReport]:
    servers = assembly.reopen_servers(store, stored, study)
    problem = assembly.pose(study, servers, hot_switch=stored.hot_switch)
    return servers, assembly.make_report(store, stored.name, problem, servers)


def _trial(report: StudyReport, number: int) -> Any:  # noqa: ANN401
    for trial in report.standing.trials:
        if trial.number == number:
            return trial
    last = len(report.standing.trials) - 1
    raise CommandError(f"study {report.study.name} has no trial {number}; its last is {last}")


def _print(report: StudyReport, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(dump(report.to_dict()))
        return
    from tuner.render import render  # noqa: PLC0415

    render(report)


def _code(report: StudyReport) -> Exit:
    if report.study.stopped == "interrupted":
        return Exit.INTERRUPTED
    if report.study.stopped == "fault":
        return Exit.FAULT
    return Exit.DONE if report.standing.best is not None else Exit.INFEASIBLE
