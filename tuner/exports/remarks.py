"""Comments of an export: origin, measurement, confidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.records import TrialState
from search_spaces.metrics import OUTPUT_TOK_S
from tuner.formatting import counted, describe, describe_gain, describe_resolved, describe_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from results.records import Launch, Machine, Trial
    from tuner.reports.report import StudyReport


def one_line(text: str) -> str:
    """`text` without line breaks and characters that a comment cannot hold."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in _words(text))


def _words(text: str) -> str:
    # Keep the indentation, which groups lines.
    indent = text[: len(text) - len(text.lstrip(" "))]
    return indent + " ".join(text.split())


def remarks(report: StudyReport, trial: Trial, cautions: Iterable[str] = ()) -> list[str]:
    """First comment lines of every format.

    Args:
        report: Report of the study.
        trial: The exported trial.
        cautions: Safety warnings.
    """
    study = report.study
    described = describe(trial.configuration, report.fixed)
    lines = [f"Study {study.name}, trial {trial.number}: {described}"]
    if ran := describe_resolved(trial):
        lines.append(f"Configuration that the server reported: {ran}")
    if trial.state is not TrialState.COMPLETE:
        why = trial.failure.message if trial.failure is not None else "it has no result"
        lines.append(f"DO NOT USE IN PRODUCTION: the trial is {trial.state}: {why}")
    if study.simulated:
        lines.append("SIMULATED: measured on a simulated server, not on a GPU.")
        lines += (note[0].upper() + note[1:] for note in report.notes)
    mark = "simulated " if study.simulated else ""
    metric = report.leaderboard.metric
    for measurement in trial.measurements:
        result = (
            f"{measurement.output_tok_s:.1f} {mark}output tok/s"
            if metric == OUTPUT_TOK_S
            else describe_result([measurement], metric, mark)
        )
        accept = measurement.accept_length
        lines.append(
            f"{result} at {measurement.point.name}"
            + (f", accept length {accept:.2f}" if accept is not None else "")
        )
        lines += (f"WARNING: {reason}" for reason in measurement.warnings)
    lines += _switched(report, trial)
    for name, base, gain in report.leaderboard.leads(trial):
        gained = describe_gain(gain, len(trial.measurements))
        lines.append(f"{gained} over baseline '{name}' (trial {base.number})")
    best = report.leaderboard.best
    if best is not None and best.number == trial.number:
        lines.append(f"Verdict: {report.verdict.kind} ({report.verdict.reason})")
    lines += versions(report, trial)
    lines += (f"WARNING: {caution}" for caution in cautions)
    return [one_line(line) for line in lines]


def switched_launch(report: StudyReport, trial: Trial) -> Launch | None:
    """Launch that measured the trial on a server for several settings, if any.

    The export starts a server for one setting; `docs/hot-switch.md` says how well both agree.
    """
    judged = next((x for x in report.launches if x.id == trial.judged_in), None)
    return judged if judged is not None and judged.intent.settings else None


def _switched(report: StudyReport, trial: Trial) -> list[str]:
    launch = switched_launch(report, trial)
    if launch is None:
        return []
    settings = counted(len(launch.intent.settings), "setting")
    where = f"launch {launch.id}, whose server was switched between {settings}"
    return [f"Measured in {where}: confirm a lead of a few percent in a separate launch"]


def versions(report: StudyReport, trial: Trial) -> list[str]:
    """Versions of the software that measured the trial, if recorded."""
    machine = measured_machine(report, trial)
    software = {"SGLang": measured_version(report, trial)}
    gpus: tuple[str, ...] = ()
    if machine is not None:
        software |= {"torch": machine.torch, "NCCL": machine.nccl, "driver": machine.driver}
        gpus = machine.gpus
    known = [f"{name} {number}" for name, number in software.items() if number]
    known += [f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)]
    if not known:
        return []
    return [f"{'Simulated' if report.study.simulated else 'Measured'} with {', '.join(known)}"]


def measured_version(report: StudyReport, trial: Trial) -> str | None:
    """SGLang version that the trial's server reported."""
    stated = [launch.sglang_version for launch in _launches(report, trial)]
    return next((v for v in reversed(stated) if v is not None), report.study.sglang_version)


def measured_machine(report: StudyReport, trial: Trial) -> Machine | None:
    """Machine of the trial."""
    known = [launch.machine for launch in _launches(report, trial)]
    return next((machine for machine in reversed(known) if machine is not None), None)


def slowest_start_s(report: StudyReport) -> float | None:
    """Longest start of the study's servers in seconds; `None` if no server was ready."""
    return max((launch.ready_s for launch in report.launches if launch.ready_s), default=None)


def _launches(report: StudyReport, trial: Trial) -> list[Launch]:
    return [launch for launch in report.launches if launch.id in trial.launches]
