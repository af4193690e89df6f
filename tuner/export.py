"""The best configuration as something that can be run elsewhere."""

from __future__ import annotations

import json
import math
import shlex
from typing import TYPE_CHECKING, Any

from results.records import TrialState
from runners.sglang_command import shell
from tuner.words import describe, describe_gain

if TYPE_CHECKING:
    from results.records import Trial
    from runners.base import LaunchCommand
    from tuner.report import StudyReport


def export_json(report: StudyReport, command: LaunchCommand) -> dict[str, Any]:
    """The JSON of `tuner export --format json`."""
    return {
        "simulated": report.study.simulated,
        "argv": list(command.argv),
        "env": dict(command.env),
        "unset": list(command.unset),
        "command": shell(command),
    }


def export_shell(report: StudyReport, trial: Trial, command: LaunchCommand) -> str:
    """A shell script that replaces itself with the server."""
    study = report.study
    lines = [
        "#!/bin/sh",
        f"# Study {study.name}, trial {trial.number}: {describe(trial.configuration)}",
    ]
    if trial.state is not TrialState.COMPLETE:
        why = trial.failure.message if trial.failure is not None else "it was not judged"
        lines.append(f"# DO NOT RELY ON IT: the trial is {trial.state}: {_one_line(why)}")
    if study.simulated:
        lines.append("# SIMULATED: found on a simulated server, not measured on any GPU.")
    mark = "simulated " if study.simulated else ""
    for measurement in trial.measurements:
        accept = measurement.accept_length
        lines.append(
            f"# {measurement.output_tok_s:.1f} {mark}output tok/s at "
            f"{measurement.point.name}"
            + (f", accept length {accept:.2f}" if accept is not None else "")
        )
        lines += (f"# WARNING: {_one_line(reason)}" for reason in measurement.warnings)
    for name, base in report.standing.baselines.items():
        gain = report.standing.gain_over(name, trial)
        if gain is not None and base is not None and base.number != trial.number:
            gained = describe_gain(gain, len(trial.measurements))
            lines.append(f"# {gained} on baseline '{name}' (trial {base.number})")
    best = report.standing.best
    if best is not None and best.number == trial.number:
        lines.append(f"# Verdict: {report.verdict.kind} ({report.verdict.reason})")
    if study.sglang_version is not None:
        lines.append(f"# SGLang {study.sglang_version}")
    return "\n".join([*lines, _exec(command), ""])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _exec(command: LaunchCommand) -> str:
    """The command as a script's last line: signals sent to the script then reach the server."""
    environment = [word for name in command.unset for word in ("-u", name)]
    environment += [f"{name}={value}" for name, value in command.env]
    words = ["exec", *(["env", *environment] if environment else []), *command.argv]
    return shlex.join(words)


def dump(data: dict[str, Any]) -> str:
    """JSON as every command prints it."""
    return json.dumps(_without_nan(data), indent=2, allow_nan=False) + "\n"


def _without_nan(value: Any) -> Any:  # noqa: ANN401 - JSON
    """`null` for what is not a number (a percentile of no requests): JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
