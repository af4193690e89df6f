"""What of a study still holds in another one that goes on from it. Pure."""

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
"""Another server, or another machine: nothing that was seen there is known here."""

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
"""What SGLang itself sets where nothing is set (engine.py and a running 0.5.23): where it is found
so, it need not have been the caller."""

_OTHER_LOAD = frozenset({"workload"})


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a fork takes over, and what not.

    Attributes:
        trials: What holds.
        left: Why others do not, with how many each.
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
    """Works out which trials of a study hold in a new one.

    - Another server or machine (model, fixed flags and variables, engine, GPUs): none.
    - Another load: those whose server did not start, which no load comes into.
    - Else those that were judged, `complete` or `infeasible`, and are a point of the new space or
      a baseline of it; with figures they are judged anew by the new study's limits.

    Args:
        trials: Of the old study.
        launches: Of the old study.
        study: The new study's file.
        space: Its space.
        baselines: Its baselines.
        differences: Between the two studies and their machines.
        caller: The environment that servers of the new study will inherit.
        switched: Whether figures of servers that were prepared for several settings hold.
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
    """Whether its server failed before any load came to it, by its own fault."""
    failure = trial.failure
    return failure is not None and failure.fault == "configuration" and failure.phase != "load"


def _was_set(here: Configuration, there: Configuration, environment: Mapping[str, str]) -> bool:
    """Whether a variable that the new study removes was set beside the old one.

    One that the old study did not name came from the caller's environment, if from anywhere; what
    the server had is recorded for those that bear on serving.
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
    """A configuration as another study spells it.

    A variable that the old study removed and the new one does not name is left to the caller's
    environment there: where it is not set, that is the same.
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
