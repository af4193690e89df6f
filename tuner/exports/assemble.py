"""Build the `Exported` value that every format writes."""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from runners.sglang.command import redacted, server_flags
from search_spaces.gpus import gpus_of_node, nodes_of
from search_spaces.safety_warnings import safety_warnings
from search_spaces.secrets import is_reference, is_secret, redact, redact_text
from search_spaces.space.baselines import PRODUCTION, baselines
from tuner.analysis.contributions import contributions
from tuner.exports.changes import changes_json, describe_changes
from tuner.exports.exported import Exported, Secret
from tuner.exports.remarks import (
    measured_machine,
    measured_version,
    one_line,
    remarks,
    slowest_start_s,
    switched_launch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from results.records import Trial
    from results.studies import StoredMeasurement
    from runners.base import LaunchCommand
    from search_spaces.study_file.study import Study
    from tuner.analysis.contributions import Contributions
    from tuner.reports.report import StudyReport

IMAGE = "lmsysorg/sglang"
_RUNNING = "max-running-requests"
_LEAST_START_S = 600
_UNKNOWN_START_S = 3600
_START_MARGIN = 3
"""A start may take this many times the slowest one seen: weights are not in the page cache, and
kernels are compiled or fetched anew."""


def assemble(
    report: StudyReport,
    study: Study,
    trial: Trial,
    command: LaunchCommand,
    *,
    windows: Iterable[StoredMeasurement] = (),
    image: str | None = None,
    against: str | None = None,
) -> Exported:
    """Build the export of a trial.

    Args:
        report: Report of the study.
        study: The study file.
        trial: The trial.
        command: Its launch command with interpreter, module and variables.
        windows: All windows of the study, which show the noise.
        image: Container image; defaults to SGLang's image of the measured version.
        against: Name of the baseline to compare with.
    """
    simulated = report.study.simulated
    flags = server_flags(study, trial.configuration)
    found = contributions(
        report.leaderboard,
        trial,
        fixed_flags=study.server.flags,
        fixed_env=study.server.env,
        against=against,
        windows=windows,
    )
    version = measured_version(report, trial)
    start_s, start_reason = _start(report)
    env = dict(command.env)
    found_cautions = safety_warnings(trial.configuration, study)
    return Exported(
        study=report.study.name,
        trial=trial.number,
        simulated=simulated,
        python=command.argv[0],
        module=command.argv[2],
        flags=tuple((name, _protected(name, value)) for name, value in flags.items()),
        env=tuple((name, _protected(name, value)) for name, value in env.items()),
        unset=command.unset,
        command=redacted(command),
        remarks=tuple(remarks(report, trial, found_cautions)),
        changes=tuple(one_line(line) for line in describe_changes(found, simulated=simulated)),
        contributions=found,
        notes=tuple(one_line(note) for note in _notes(study, flags, env, pinned=command.prefix)),
        facts=_facts(report, trial, found, found_cautions),
        image=image or f"{IMAGE}:{f'v{version}' if version else 'latest'}",
        gpus=gpus_of_node(flags),
        start_s=start_s,
        start_reason=start_reason,
        local_paths=_local_paths(flags),
        cache=env.get("HF_HOME") or "/root/.cache/huggingface",
    )


def _protected(name: str, value: Any) -> Any:  # noqa: ANN401 - any value of a study file
    """`value` with secrets replaced by references."""
    shown = redact(name, value)
    if is_secret(name) and is_reference(shown):
        return Secret(shown.strip("${}"))
    return redact_text(shown) if isinstance(shown, str) else shown


def _local_paths(flags: dict[str, Any]) -> tuple[str, ...]:
    """Models given by absolute path. Other models are names of a hub."""
    names = ("model-path", "speculative-draft-model-path", "tokenizer-path")
    paths = (str(flags[name]) for name in names if flags.get(name))
    return tuple(dict.fromkeys(path for path in paths if PurePosixPath(path).is_absolute()))


def _start(report: StudyReport) -> tuple[int, str]:
    slowest = slowest_start_s(report)
    if slowest is None:
        return _UNKNOWN_START_S, "no start was measured"
    mark = " (simulated)" if report.study.simulated else ""
    seconds = max(_LEAST_START_S, 10 * math.ceil(_START_MARGIN * slowest / 10))
    return seconds, f"the slowest start in the study took {slowest:.0f} s{mark}"


def _notes(
    study: Study, flags: dict[str, Any], env: dict[str, str], *, pinned: Sequence[str]
) -> list[str]:
    notes = []
    if (limit := flags.get(_RUNNING)) is not None and _today_leaves(study, _RUNNING):
        notes.append(
            f"--{_RUNNING} {limit} is set, so that all compared servers run as many requests. "
            "Today's command does not set it; SGLang 0.5.23 then limits it to 48 with speculation. "
            "Raise it if you serve more requests at once."
        )
    if study.server.prefix and not pinned:
        prefix = " ".join(redact_text(word) for word in study.server.prefix)
        notes.append(
            f"The measured servers were started with the prefix `{prefix}`: "
            "start this one there, too."
        )
    if nodes_of(flags) > 1:
        notes.append(
            f"The server runs on {flags['nnodes']} nodes: start it on each with its own "
            "--node-rank."
        )
    relative = [flags[n] for n in ("model-path", "speculative-draft-model-path") if n in flags]
    if found := [path for path in relative if str(path).startswith((".", "~"))]:
        notes.append(f"{', '.join(map(str, found))}: relative to the working directory.")
    protected = [*flags.items(), *env.items()]
    if any(isinstance(v, str) and not is_secret(n) and redact_text(v) != v for n, v in protected):
        notes.append("A token in a value was replaced by $TOKEN: insert yours.")
    return notes


def _today_leaves(study: Study, flag: str) -> bool:
    """Whether today's command lacks a flag that the study fixes."""
    today = baselines(study).get(PRODUCTION)
    return today is not None and (flag, None) in today.flags


def _facts(
    report: StudyReport, trial: Trial, found: Contributions, cautions: Sequence[str]
) -> dict[str, Any]:
    study, leaderboard = report.study, report.leaderboard
    is_best = leaderboard.best is not None and leaderboard.best.number == trial.number
    machine = measured_machine(report, trial)
    switched = switched_launch(report, trial)
    told = [*(r for m in trial.measurements for r in m.warnings), *cautions]
    return {
        "study": study.name,
        "trial": trial.number,
        "simulated_acceptance": report.simulated_acceptance,
        "state": str(trial.state),
        "verdict": {"kind": report.verdict.kind, "reason": report.verdict.reason}
        if is_best
        else None,
        "switched": {"launch": switched.id, "settings": len(switched.intent.settings)}
        if switched is not None
        else None,
        "sglang_version": measured_version(report, trial),
        "machine": machine.to_dict() if machine is not None else None,
        "warnings": [one_line(reason) for reason in told],
        **changes_json(found, simulated=study.simulated),
    }
