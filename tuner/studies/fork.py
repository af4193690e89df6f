"""Select the results of a study that are valid in another study. Pure functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from results.records import TrialState
from results.studies import ForkedTrial
from search_spaces.rules.legality import canonical
from tuner.verdict.scores import CONSTRAINT, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from results.records import Failure, Launch, Trial
    from search_spaces.configuration import Configuration
    from search_spaces.space.space import Space
    from search_spaces.study_file.study import Study
    from tuner.studies.differences import Difference

_ELSEWHERE = frozenset({"runner", "engine", "gpus", "model", "server", "simulated"})
"""Differences of server or machine, which make all results invalid."""

_SGLANGS_OWN = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "8",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_GRAPH_MIXING_SUPPORT": "0",
    "NCCL_NVLS_ENABLE": "0",
    "SGLANG_DISABLE_OUTLINES_DISK_CACHE": "0",
    "SGLANG_ENABLE_DETERMINISTIC_INFERENCE": "0",
    "SGLANG_ENABLE_TORCH_COMPILE": "0",
    "SGLANG_USE_CUDA_IPC_TRANSPORT": "0",
    "TRTLLM_ENABLE_PDL": "1",
}
"""Values that SGLang sets for unset variables (engine.py, 0.5.23), which do not prove that the
caller set them."""

_OTHER_LOAD = frozenset({"workload"})


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Results that a fork reuses.

    Attributes:
        trials: Trials that are valid in the fork.
        left: Reasons why other trials are not valid, with the number of trials.
    """

    trials: tuple[ForkedTrial, ...] = ()
    left: Mapping[str, int] = field(default_factory=dict)


def inherit(
    trials: Sequence[Trial],
    launches: Sequence[Launch],
    *,
    study: Study,
    space: Space,
    baselines: Mapping[str, Configuration],
    differences: Sequence[Difference],
    caller: Mapping[str, str],
    switched: bool = True,
) -> Inheritance:
    """Select the trials of a study that are valid in a new study.

    - If the server or the machine differs (model, fixed flags and variables, engine, GPUs), none is
    valid.
    - If only the load differs, the trials whose server did not start are valid.
    - Otherwise `complete` and `infeasible` trials are valid if the new space or its baselines
    contain their configuration. The limits of the new study apply.

    Args:
        trials: Trials of the old study.
        launches: Launches of the old study.
        study: The new study file.
        space: Search space of the new study.
        baselines: Baselines of the new study.
        differences: Differences between the studies and between the machines.
        caller: Environment that servers of the new study inherit.
        switched: Whether results of servers for several settings are valid.
    """
    changed = {difference.part for difference in differences}
    left: Counter[str] = Counter()
    if elsewhere := sorted(changed & _ELSEWHERE):
        left[f"measured with another {_words(elsewhere)}"] = len(trials)
        return Inheritance((), left)
    limits = dict(study.objective.subject_to)
    wanted = {configuration.key for configuration in baselines.values()}
    environments = {launch.id: dict(launch.effective_environment) for launch in launches}
    shared = {launch.id for launch in launches if launch.intent.settings}
    found: dict[str, ForkedTrial] = {}
    for trial in trials:
        if trial.state not in {TrialState.COMPLETE, TrialState.INFEASIBLE}:
            left[f"{trial.state}, without a result"] += 1
            continue
        never_served = not trial.measurements and _did_not_start(trial)
        if changed & _OTHER_LOAD and not never_served:
            left["measured under another workload"] += 1
            continue
        if not switched and trial.judged_in in shared:
            left["measured after a hot switch"] += 1
            continue
        here = _spelled(trial.configuration, study, caller)
        if here not in space and here.key not in wanted:
            left["not in the new search space or its baselines"] += 1
            continue
        environment = {} if trial.judged_in is None else environments.get(trial.judged_in, {})
        if _was_set(here, trial.configuration, environment):
            left["measured with an environment variable that the new study removes"] += 1
            continue
        state, failure = _judged(trial, limits)
        # The later one of two: a baseline that was lost to the host is measured again.
        found[here.key] = ForkedTrial(trial.number, here, state, failure)
    return Inheritance(tuple(sorted(found.values(), key=lambda t: t.number)), left)


def _did_not_start(trial: Trial) -> bool:
    """Whether the server failed before it received load, because of its configuration."""
    failure = trial.failure
    return failure is not None and failure.fault == "configuration" and failure.phase != "load"


def _was_set(here: Configuration, there: Configuration, environment: Mapping[str, str]) -> bool:
    """Whether a variable that the new study removes was set in the old study's servers.

    If the old study did not name the variable, its value came from the caller's environment.
    Launches store those values that affect serving.
    """
    named = {name for name, _ in there.env}
    return any(
        value is None
        and name not in named
        and environment.get(name) not in {None, _SGLANGS_OWN.get(name)}
        for name, value in here.env
    )


def _spelled(
    configuration: Configuration, study: Study, caller: Mapping[str, str]
) -> Configuration:
    """Write a configuration with the variables of another study.

    A variable that the old study removed and the new study does not name is dropped: the caller's
    environment decides, and an unset variable there means the same.
    """
    named = {*study.space.env, *study.server.env, *caller}
    env = tuple(
        (name, value) for name, value in configuration.env if value is not None or name in named
    )
    return canonical(replace(configuration, env=env), study)


def _judged(trial: Trial, limits: Mapping[str, float]) -> tuple[TrialState, Failure | None]:
    by_limits = trial.failure is None or trial.failure.kind == CONSTRAINT
    if not trial.measurements or not by_limits:
        return trial.state, trial.failure
    return judge(trial.measurements, limits)


def _words(parts: Sequence[str]) -> str:
    return " and ".join({"gpus": "set of GPUs", "engine": "engine"}.get(p, p) for p in parts)
