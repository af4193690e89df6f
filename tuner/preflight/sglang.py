"""Check the configurations of a study with SGLang itself before any launch."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from runners.base import EnvironmentUnusableError, devices_of
from runners.process.environment import Preflight
from runners.process.gpu_locks import DeviceBusyError, DeviceLocks
from runners.sglang.preflight.ask import GPUS, NotAskedError, gpu_named
from runners.sglang.preflight.preflight import PreflightResult, check_with_sglang
from search_spaces.flags.flag_values import unknown_flag
from search_spaces.space.baselines import PRODUCTION, baselines
from search_spaces.space.conditions import format_value
from search_spaces.space.space import Space
from search_spaces.space.version_flags import unsupported_flags
from tuner.errors import CommandError
from tuner.formatting import counted, describe, fixed_names
from tuner.studies.assembly import draft_sizes, make_servers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runners.base import Runner
    from runners.process.environment import ServerEnvironment
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study
    from tuner.studies.assembly import TuningProblem

_QUICK = (200, 30.0)
"""Maximum points and seconds while the user waits for the answer."""
_SWEEP = (2_000, 60.0)
"""Maximum points and seconds before hours of launches."""
_MOST_LINES = 6
_UNKNOWN = re.compile(r"unrecognized arguments: --([\w-]+)")
# Transformers' message if it is offline and the machine has no config.json of the model.
_NO_CONFIG = re.compile(r"OSError: We couldn't connect to \S+ to load the files")


@dataclass(frozen=True, slots=True)
class PreflightSummary:
    """Result of a check for `tuner validate`.

    Attributes:
        result: SGLang's answers; `None` if the check was skipped.
        skipped: Why the check was skipped.
        refused: Why no launch of the study is possible, else `None`.
    """

    result: PreflightResult | None = None
    skipped: str = ""
    refused: str | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The result as sentences."""
        return (_skipped(self.skipped),) if self.result is None else _result_lines(self.result)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form (`docs/schemas/validate.schema.json`)."""
        result = self.result
        if result is None:
            return {"not_asked": self.skipped}
        return {
            "version": result.version,
            "as_if_on": result.gpu.name if result.gpu is not None else None,
            "asked": len(result.asked),
            "points": result.points,
            "seconds": round(result.seconds, 1),
            "refused": _reasons(result.refused),
            "unanswered": _reasons(result.unanswered),
            "rewritten": [
                {"flag": r.flag, "asked": r.asked, "runs": r.run, "configurations": len(r.points)}
                for r in result.rewrites
            ],
            "sets_itself": [
                {
                    "flag": choice.flag,
                    "by": choice.by,
                    "values": [{"value": v, "at": list(at)} for v, at in choice.values],
                }
                for choice in result.own_choices
            ],
        }


def check_study(study: Study, space: Space, gpu: str | None) -> PreflightSummary:
    """Check a study whose runner has the capability `Preflight`, while the user waits.

    Args:
        study: The study.
        space: Its legal points.
        gpu: GPU to simulate on a machine without one.

    Raises:
        CommandError: The GPU is unknown.
    """
    if gpu is not None and gpu_named(gpu) is None:
        names = ", ".join(g.name.removeprefix("NVIDIA ") for g in GPUS)
        raise CommandError(f"--gpu {gpu} is unknown; use one of {names}")
    servers = make_servers(study.runner, study, seed=0)
    environment = cast("Preflight", servers).preflight_environment
    try:
        version = environment.facts().sglang_version
    except EnvironmentUnusableError as error:
        return PreflightSummary(skipped=str(error))
    if (unsupported := unsupported_flags(study, version)) is not None:
        why = f"SGLang {version} does not have all flags of the study"
        return PreflightSummary(skipped=why, refused=unsupported)
    known = baselines(study)
    try:
        _require_idle_devices(servers, study.name)
        result = _check(study, space, known.values(), _QUICK, environment, gpu=gpu)
    except NotAskedError as error:
        return PreflightSummary(skipped=str(error))
    return PreflightSummary(result, refused=_refusal_of_study(space, known, result))


def apply_preflight(
    problem: TuningProblem,
    servers: Runner,
    *,
    study: str = "",
    storage: str = "",
    held: bool = False,
    quick: bool = False,
) -> TuningProblem:
    """Remove the points that SGLang refuses, and add notes on changed values.

    The problem of a runner without the capability `Preflight` is returned as it is.

    Args:
        problem: The problem.
        servers: Runner of the problem.
        study: Name of the stored study, if it is stored.
        storage: Database of the stored study.
        held: Whether this tuner has locked the devices already.
        quick: Whether the user waits for the answer.

    Raises:
        CommandError: SGLang refuses all configurations or a baseline.
    """
    if not isinstance(servers, Preflight):
        return problem
    known, limits = problem.baselines, _QUICK if quick else _SWEEP
    environment = servers.preflight_environment
    try:
        if not held:
            _require_idle_devices(servers, study or problem.study.name, storage)
        result = _check(problem.study, problem.space, known.values(), limits, environment)
    except NotAskedError as error:
        return replace(problem, notes=(*problem.notes, _skipped(str(error))))
    if (refusal := _refusal_of_study(problem.space, known, result)) is not None:
        raise CommandError(refusal)
    space = problem.space
    if result.refused:
        space = Space(
            problem.study,
            draft_sizes(servers, problem.study),
            lambda point: result.refusal(point) is not None,
        )
    return replace(
        problem,
        space=space,
        baselines={n: c for n, c in known.items() if result.refusal(c) is None},
        launches=problem.launches.for_space(space),
        notes=(*problem.notes, *_result_lines(result)),
    )


def _check(
    study: Study,
    space: Space,
    known: Iterable[Configuration],
    limits: tuple[int, float],
    environment: ServerEnvironment,
    *,
    gpu: str | None = None,
) -> PreflightResult:
    most, seconds = limits
    sys.stderr.write("checking the configurations with SGLang\n")
    return check_with_sglang(
        study,
        space,
        known,
        environment,
        most=most,
        seconds=seconds,
        gpu_names=(gpu,) if gpu is not None else _gpus_of_profile(study),
    )


def _gpus_of_profile(study: Study) -> tuple[str, ...]:
    """GPUs of the simulation profile that the study names: the machine that it is about."""
    if "profile" not in study.simulated.model_fields_set:
        return ()
    from runners.simulated_server.engine.profile import (  # noqa: PLC0415 - only if named
        load_profile,
    )

    try:
        return tuple(load_profile(study.simulated.profile).gpus)
    except (OSError, ValueError):
        return ()  # `check_runner_key` reports the profile


def _require_idle_devices(servers: Runner, study: str, storage: str = "") -> None:
    """Raise `NotAskedError` during a measurement: the check uses a core and looks at the GPUs."""
    try:
        with DeviceLocks(devices_of(servers), study, storage):
            return
    except (DeviceBusyError, EnvironmentUnusableError) as error:
        raise NotAskedError(str(error)) from error
    except OSError:
        return  # a sweep refuses to run without locks, so nothing is measured


def _refusal_of_study(
    space: Space, known: Mapping[str, Configuration], result: PreflightResult
) -> str | None:
    """Return why the study cannot run: every configuration or a needed baseline is refused."""
    refused = result.refused
    if not refused:
        return None
    remedy = "Correct the study, or use an SGLang version that accepts it"
    answered = [c for c in result.asked if c not in result.unanswered]
    if len(refused) == len(answered) or all(result.refusal(point) for point in space):
        reasons = list(dict.fromkeys(refused.values()))
        also = f" ({counted(len(reasons) - 1, 'further reason')})" if len(reasons) > 1 else ""
        return (
            f"SGLang {result.version} refuses every configuration of the study: "
            f"{_hinted(reasons[0])}{also}. {remedy}"
        )
    for name in ("none", PRODUCTION):
        if name in known and (reason := result.refusal(known[name])) is not None:
            return (
                f"SGLang {result.version} refuses the baseline '{name}': {_hinted(reason)}. "
                f"{remedy}"
            )
    return None


def _hinted(reason: str) -> str:
    """Add the probable name to the refusal of an unknown flag."""
    unknown = _UNKNOWN.match(reason)
    hint = unknown_flag(unknown[1]) if unknown else None
    return f"{reason} ({hint})" if hint else reason


def _skipped(why: str) -> str:
    return f"the configurations were not checked with SGLang: {why}"


def _result_lines(result: PreflightResult) -> tuple[str, ...]:
    """Return the result as sentences, with the totals first."""
    findings = []
    for reason, points in _by_reason(result.refused):
        findings.append(f"{_points(points, result)} would not start: {reason}")
    for reason, points in _by_reason(result.unanswered):
        why = _missing_config(result) if _NO_CONFIG.match(reason) else reason
        findings.append(f"{_points(points, result)}: not checked ({why})")
    findings += [
        f"{_points(rewrite.points, result)} would run with --{rewrite.flag} {rewrite.run} "
        f"instead of {rewrite.asked}"
        for rewrite in result.rewrites
    ]
    choices = []
    for choice in result.own_choices:
        values = []
        for value, at in choice.values:
            condition = f" at {choice.by} {' or '.join(map(format_value, at))}" if at else ""
            values.append(f"{format_value(value)}{condition}")
        choices.append(f"--{choice.flag} is not set, SGLang chooses: {', '.join(values)}")
    return (_totals(result), *_shortened(findings), *_shortened(choices))


def _totals(result: PreflightResult) -> str:
    gpu = f", for {result.gpu.name} (this machine has no GPU)" if result.gpu is not None else ""
    launches = counted(len(result.asked), "launch")
    verdict = f"accepts all of {launches}"
    if result.unanswered:
        verdict = f"gives no answer for {len(result.unanswered)} of {launches}"
    if result.refused:
        verdict = f"refuses {len(result.refused)} of {launches}"
    missed = result.chosen - len(result.asked)
    late = f"; {missed} not checked: {result.cut_short or 'time limit'}" if missed else ""
    return (
        f"SGLang {result.version} {verdict}{gpu}, which represent "
        f"{counted(result.points, 'point')}: points that differ only in NCCL variables are checked "
        f"once ({result.seconds:.0f} s{late})"
    )


def _missing_config(result: PreflightResult) -> str:
    model = result.study.model
    names = " or ".join(name for name in (model.path, model.draft) if name is not None)
    return (
        f"this machine has no config.json of {names}, and the check downloads nothing; run "
        "`hf download NAME config.json` for each model, the weights are not needed"
    )


def _reasons(found: Mapping[Configuration, str]) -> list[dict[str, Any]]:
    return [{"configuration": c.to_dict(), "reason": why} for c, why in found.items()]


def _by_reason(
    found: Mapping[Configuration, str],
) -> Iterator[tuple[str, list[Configuration]]]:
    """Group configurations by reason, the largest group first."""
    groups: dict[str, list[Configuration]] = defaultdict(list)
    for configuration, reason in found.items():
        groups[reason].append(configuration)
    yield from sorted(groups.items(), key=lambda group: -len(group[1]))


def _points(points: Iterable[Configuration], result: PreflightResult) -> str:
    first, *others = points
    text = describe(first, fixed_names(result.study))
    return text if not others else f"{text} and {len(others)} more"


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    more = len(lines) - _MOST_LINES + 1
    return [*lines[: _MOST_LINES - 1], f"and {more} more; `tuner validate --json` lists them"]
