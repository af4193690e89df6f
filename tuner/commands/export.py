"""`tuner export`: write the best launch command, and its changes from a baseline."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from results.records import TrialState
from runners.base import Simulation
from tuner.analysis.contributions import AGAINST
from tuner.commands.show import existing, report_of, trial_of
from tuner.errors import CommandError, Exit
from tuner.exports import CONTAINER_FORMATS, format_of
from tuner.exports.assemble import assemble
from tuner.exports.changes import changes_json
from tuner.reports.json_text import dump

if TYPE_CHECKING:
    from pathlib import Path

    from results.records import Trial
    from results.studies import StoredStudy
    from runners.base import LaunchCommand, Runner
    from tuner.exports.exported import Exported
    from tuner.reports.report import StudyReport


def export(
    name_or_path: str | None,
    *,
    storage: str,
    format_: str,
    output: Path | None,
    trial: int | None,
    entry: str,
    image: str | None = None,
    against: str | None = None,
    force: bool = False,
) -> Exit:
    """Write a trial's launch command in one of the formats. The trial defaults to the best."""
    if image is not None and format_ not in CONTAINER_FORMATS:
        raise CommandError(f"--image applies only to {' and '.join(CONTAINER_FORMATS)}; remove it")
    if output is not None and output.is_file() and not force:
        raise CommandError(
            f"{output} exists already; --force overwrites it, --output names another file"
        )
    exported = _exported(name_or_path, storage, trial, entry, image=image, against=against)
    format_written = format_of(format_)
    text = format_written.write(exported)
    if output is None:
        sys.stdout.write(text)
        return Exit.DONE
    try:
        output.write_text(text, encoding="utf-8")
        if format_written.EXECUTABLE:
            output.chmod(output.stat().st_mode | 0o111)
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror or error}") from error
    sys.stderr.write(f"wrote {output}\n")
    return Exit.DONE


def diff(
    name_or_path: str | None,
    *,
    storage: str,
    trial: int | None,
    against: str | None,
    as_json: bool,
) -> Exit:
    """Print the differences of a trial from a baseline, and the gain of each."""
    exported = _exported(name_or_path, storage, trial, "sglang", image=None, against=against)
    if as_json:
        changes = changes_json(exported.contributions, simulated=exported.simulated)
        names = ("study", "trial", "simulated_acceptance")
        facts = {"simulated": exported.simulated} | {name: exported.facts[name] for name in names}
        sys.stdout.write(dump({**facts, **changes}))
        return Exit.DONE
    from tuner.exports.changes import render_changes  # noqa: PLC0415

    render_changes(exported)
    return Exit.DONE


def _exported(
    name_or_path: str | None,
    storage: str,
    trial: int | None,
    entry: str,
    *,
    image: str | None,
    against: str | None,
) -> Exported:
    with existing(storage, name_or_path, read_only=True) as (store, stored, study):
        servers, report = report_of(store, stored, study)
        chosen = _chosen(report, stored, trial)
        _check_baseline(report, against)
        command = _command(servers, stored, chosen, entry)
        if command.argv[1:2] != ("-m",):
            raise CommandError(
                f"`tuner export` supports SGLang commands only; the command of trial "
                f"{chosen.number} is: {shlex.join(command.argv)}"
            )
        # Only a trial that more than one launch worked on can have been repeated.
        repeated = [t for t in report.leaderboard.trials if len(t.launches) > 1]
        windows = [w for t in repeated for w in store.measurements(stored.id, t.number)]
    if chosen.state is not TrialState.COMPLETE:
        why = f": {chosen.failure.message}" if chosen.failure is not None else ""
        sys.stderr.write(f"warning: trial {chosen.number} is {chosen.state}{why}\n")
    return assemble(report, study, chosen, command, windows=windows, image=image, against=against)


def _chosen(report: StudyReport, stored: StoredStudy, number: int | None) -> Trial:
    chosen = report.leaderboard.best if number is None else trial_of(report, number)
    if chosen is None and all(t.state is TrialState.RUNNING for t in report.leaderboard.trials):
        raise CommandError(
            f"study {stored.name} has nothing to export yet, because no trial has a result; "
            f"continue with `tuner resume --study {stored.name}`",
            Exit.INFEASIBLE,
        )
    if chosen is None:
        raise CommandError(
            f"study {stored.name} has no feasible configuration to export; "
            f"`tuner show --study {stored.name}` prints the reasons",
            Exit.INFEASIBLE,
        )
    return chosen


def _check_baseline(report: StudyReport, against: str | None) -> None:
    known = report.leaderboard.baselines
    if against is None or known.get(against) is not None:
        return
    measured = [f"'{name}'" for name in AGAINST if known.get(name) is not None]
    raise CommandError(
        f"study {report.study.name} has no measured baseline '{against}'; "
        f"measured are {', '.join(measured) or 'no baselines yet'}"
    )


def _command(servers: Runner, stored: StoredStudy, chosen: Trial, entry: str) -> LaunchCommand:
    if entry != "simulated":
        return servers.command(chosen.configuration)
    if not isinstance(servers, Simulation):
        raise CommandError(f"study {stored.name} was not simulated; remove --entry")
    return servers.simulated_command(chosen.configuration)
