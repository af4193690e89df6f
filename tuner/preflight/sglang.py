"""Check the configurations of a study with SGLang itself before any launch."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runners.base import EnvironmentUnusableError, devices_of
from runners.process.environment import Preflight, server_environment
from runners.process.gpu_locks import DeviceBusyError, DeviceLocks
from runners.sglang.preflight.ask import GPUS, NotAskedError, gpu_named
from runners.sglang.preflight.preflight import PreflightResult, check_with_sglang
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.space.version_flags import unsupported_flags
from tuner.errors import CommandError
from tuner.preflight.sglang_text import as_json, refused_for_all, told
from tuner.studies.assembly import draft_sizes, make_servers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runners.base import Runner
    from runners.process.environment import ServerEnvironment
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study
    from tuner.studies.assembly import TuningProblem

_LOOK = (200, 30.0)
"""Points and seconds where somebody waits for the answer."""
_SWEEP = (2_000, 60.0)
"""Points and seconds before hours of launches."""


@dataclass(frozen=True, slots=True)
class PreflightSummary:
    """SGLang's word on a study.

    Attributes:
        preflight_result: `None` where it was not asked.
        why_not: Why it was not.
        refused: Why nothing of the study would run, else `None`.
    """

    preflight_result: PreflightResult | None = None
    why_not: str = ""
    refused: str | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """As sentences."""
        return (
            (not_asked(self.why_not),)
            if self.preflight_result is None
            else told(self.preflight_result)
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        if self.preflight_result is None:
            return {"not_asked": self.why_not}
        return as_json(self.preflight_result)


def check_study(study: Study, space: Space, gpu: str | None) -> PreflightSummary:
    """What SGLang makes of a study that runs on real servers, where somebody waits for it.

    Args:
        study: The study.
        space: Its points.
        gpu: The GPU that is meant where there is none.

    Raises:
        CommandError: No such GPU is known.
    """
    if gpu is not None and gpu_named(gpu) is None:
        names = ", ".join(g.name.removeprefix("NVIDIA ") for g in GPUS)
        raise CommandError(f"--gpu {gpu}: not known here; name one of {names}")
    environment = server_environment(study)
    try:
        version = environment.facts().sglang_version
    except EnvironmentUnusableError as error:
        return PreflightSummary(why_not=str(error))
    if (lacking := unsupported_flags(study, version)) is not None:
        return PreflightSummary(why_not="it has not all flags of the study", refused=lacking)
    known = baselines(study)
    try:
        _nothing_is_measured(make_servers("sglang", study, seed=0), study.name)
        preflight_result = _ask(study, space, known.values(), _LOOK, environment, gpu=gpu)
    except NotAskedError as error:
        return PreflightSummary(why_not=str(error))
    return PreflightSummary(
        preflight_result, refused=refused_for_all(space, known, preflight_result)
    )


def apply_preflight(
    problem: TuningProblem,
    servers: Runner,
    *,
    study: str = "",
    storage: str = "",
    held: bool = False,
    quick: bool = False,
) -> TuningProblem:
    """The problem without what SGLang would refuse; its notes tell what it would do.

    A problem on other servers than real ones is returned as it is.

    Args:
        problem: What is to be solved.
        servers: Its runner.
        study: The stored study's name, where it has one.
        storage: Its database.
        held: Whether the devices are this tuner's already.
        quick: Whether somebody waits for the answer.

    Raises:
        CommandError: What every launch has, or a baseline, is refused.
    """
    if not isinstance(servers, Preflight):
        return problem
    known, limits = problem.baselines.values(), _LOOK if quick else _SWEEP
    try:
        if not held:
            _nothing_is_measured(servers, study or problem.study.name, storage)
        preflight_result = _ask(
            problem.study, problem.space, known, limits, servers.preflight_environment
        )
    except NotAskedError as error:
        return replace(problem, notes=(*problem.notes, not_asked(str(error))))
    return _without_refused(problem, preflight_result, servers)


def _without_refused(
    problem: TuningProblem, preflight_result: PreflightResult, servers: Runner
) -> TuningProblem:
    notes = [*problem.notes, *told(preflight_result)]
    if (stops := refused_for_all(problem.space, problem.baselines, preflight_result)) is not None:
        raise CommandError(stops)
    kept = {n: c for n, c in problem.baselines.items() if preflight_result.refusal(c) is None}
    space = problem.space
    if preflight_result.refused:
        space = Space(
            problem.study,
            draft_sizes(servers, problem.study),
            lambda point: preflight_result.refusal(point) is not None,
        )
    return replace(
        problem,
        space=space,
        baselines=kept,
        launches=problem.launches.for_space(space),
        notes=tuple(notes),
    )


def not_asked(why: str) -> str:
    """What is said where SGLang was not asked."""
    return f"the configurations were not checked with SGLang: {why}"


def _ask(
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
    """The GPUs of the machine that a study names for its simulation: those that it is about."""
    if "profile" not in study.simulated.model_fields_set:
        return ()
    from runners.simulated_server.engine.profile import (  # noqa: PLC0415 - where it is named
        load_profile,
    )

    try:
        return tuple(load_profile(study.simulated.profile).gpus)
    except (OSError, ValueError):
        return ()  # `profile_check` tells


def _nothing_is_measured(servers: Runner, study: str, storage: str = "") -> None:
    """To ask takes a core for seconds, and looks at the GPUs: never beside a measurement."""
    try:
        with DeviceLocks(devices_of(servers), study, storage):
            return
    except (DeviceBusyError, EnvironmentUnusableError) as error:
        raise NotAskedError(str(error)) from error
    except OSError:
        return  # without locks nobody measures here (`holding` refuses)
