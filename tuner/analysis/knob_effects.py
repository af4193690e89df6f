"""Parts of a cycle that each knob of a study affects.

Read in SGLang 0.5.23: draft forwards use the target's group of GPUs
(`speculative/eagle_worker_v2.py`, `draft_parallel.py`), so they have tensor-parallel collectives,
as verify has. The first draft token of a chain comes from draft extend.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from search_spaces.algorithms import ALGORITHMS, Shape
from search_spaces.nccl.all_reduce import (
    NCCL_UNUSED,
    OWN_OFF,
    PCIE_IPC,
    may_have_own_kernel,
    without_nccl,
)
from search_spaces.nccl.variables import VARIABLES
from search_spaces.sglang_variables import YES
from tuner.analysis.knobs import DRAFT, DRAFT_TP, Kind, Knob
from tuner.analysis.mean_cycle import FORWARDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from results.records import Trial
    from search_spaces.configuration import Configuration, Value
    from search_spaces.study_file.study import Study

DRAFTING = ("draft", "draft_extend")
"""Parts in which the draft model runs."""

OWN_KERNEL = "no effect where SGLang's own all-reduce kernel handles decoding"

_COLLECTIVE_FLAGS = {
    OWN_OFF,
    "disable-aiter-allreduce-fusion-in-decode",
    "enable-aiter-allreduce-fusion",
    "enable-flashinfer-allreduce-fusion",
    "enable-mscclpp",
    "enable-nccl-nvls",
    "enable-quant-communications",
    "enable-symm-mem",
    "enable-torch-symm-mem",
    "enforce-disable-flashinfer-allreduce-fusion",
    "flashinfer-allreduce-fusion-backend",
}
_COLLECTIVE_VARIABLES = {
    PCIE_IPC,
    "SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB",
    "SGLANG_FORCE_CUSTOM_ALL_REDUCE_V2_PULL_SIZE_KB",
    "SGLANG_FORCE_CUSTOM_ALL_REDUCE_V2_PUSH_SIZE_KB",
    "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2",
    "SGLANG_USE_1STAGE_ALLREDUCE",
}
_DRAFT_FLAGS = {
    "speculative-draft-attention-backend",
    "speculative-moe-a2a-backend",
    "speculative-moe-runner-backend",
}
_FORWARD_FLAGS = {
    "attention-backend",
    "bf16-gemm-backend",
    "decode-attention-backend",
    "fp4-gemm-backend",
    "fp8-gemm-backend",
    "moe-a2a-backend",
    "moe-runner-backend",
}
_ADAPTIVE = "speculative-adaptive"
_REST_FLAGS = {"disable-overlap-schedule", "sampling-backend"}


class Limit(enum.StrEnum):
    """What bounds the gain of a knob."""

    PARTS = "parts"
    """The parts that it acts on cannot take less than no time."""
    DEPTH = "depth"
    """The accept length and the cycle time that another number of steps can have."""
    WIDTH = "width"
    """A tree of the same depth accepts all of its drafts at best."""
    NOTHING = "nothing"
    """It does nothing in this server's decoding."""
    UNKNOWN = "unknown"
    """Nobody here knows on which part it acts, or it changes the accept length as well."""


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """A knob and the parts of a cycle that it affects.

    Attributes:
        name: Name in the JSON of `configuration`: `"NCCL_PROTO"`, `"draft_tp"`, `"num_steps"`.
        knob: The knob.
        parts: Parts of a cycle that the knob affects.
        limit: What bounds its gain.
        how: Description of its effect.
        varied: Whether the study has several values of it.
        choices: Its other values in the study.
        collective: Whether it affects communication between GPUs.
    """

    name: str
    knob: Knob
    parts: tuple[str, ...]
    limit: Limit
    how: str
    varied: bool = True
    choices: tuple[Any, ...] = ()
    collective: bool = False


def collective_parts(study: Study, configuration: Configuration) -> tuple[str, ...]:
    """Parts with collectives between GPUs; empty for one GPU."""
    size = tp_size(study, configuration)
    if size < 2:
        return ()
    apart = configuration.draft_tp if configuration.draft_tp is not None else size
    return FORWARDS if _has_draft(configuration) and apart > 1 else ("verify",)


def tp_size(study: Study, configuration: Configuration) -> int:
    """Tensor-parallel size of the target; defaults to 1."""
    size = {**study.server.flags, **dict(configuration.flags)}.get("tp-size")
    return size if isinstance(size, int) and size > 0 else 1


def knob_effects(study: Study, trial: Trial, trials: Iterable[Trial]) -> tuple[KnobEffect, ...]:
    """Describe the knobs that the study varies, and draft placement if there is a draft.

    Args:
        study: The study.
        trial: The trial to explain.
        trials: All trials of the study, which may show that NCCL is not used in decoding.
    """
    return (
        *_variables(study, trial.configuration, trials),
        *_flags(study, trial.configuration),
        *_placement(study, trial.configuration),
        *_drafts(study, trial.configuration),
    )


def _variables(
    study: Study, configuration: Configuration, trials: Iterable[Trial]
) -> Iterator[KnobEffect]:
    unused = _nccl_unused(study, configuration, trials)
    for name, choices in study.space.env.items():
        if len(set(choices)) < 2:
            continue
        knob = Knob(Kind.VARIABLE, name)
        if name in VARIABLES and unused is not None:
            found = KnobEffect(name, knob, (), Limit.NOTHING, unused)
        elif name in VARIABLES or name in _COLLECTIVE_VARIABLES:
            found = _collective(study, configuration, knob)
        else:
            found = KnobEffect(name, knob, (), Limit.UNKNOWN, "unknown")
        yield replace(found, choices=_others(choices, dict(configuration.env).get(name)))


def _flags(study: Study, configuration: Configuration) -> Iterator[KnobEffect]:
    choices: dict[str, set[Value]] = {n: set(values) for n, values in study.space.flags.items()}
    for part in study.space.speculation:
        for name, values in part.flags.items():
            # Given in one sub-space alone: elsewhere it is not.
            choices.setdefault(name, {None}).update(values)
    for name, met in choices.items():
        if len(met) < 2:
            continue
        found = _flag(configuration, study, Knob(Kind.FLAG, name))
        yield replace(found, choices=_others(met, dict(configuration.flags).get(name)))


def _others(choices: Iterable[Value], now: Value) -> tuple[Value, ...]:
    return tuple(value for value in dict.fromkeys(choices) if value != now)


def _flag(configuration: Configuration, study: Study, knob: Knob) -> KnobEffect:
    name = knob.name
    if name in _COLLECTIVE_FLAGS:
        return _collective(study, configuration, knob)
    if name in _DRAFT_FLAGS:
        return _drafting(configuration, knob, "the draft model alone")
    if name in _FORWARD_FLAGS:
        parts = FORWARDS if _has_draft(configuration) else ("verify",)
        return KnobEffect(name, knob, parts, Limit.PARTS, "the forwards")
    if name == _ADAPTIVE:
        how = "the number of steps at run time: forwards and accept length"
        return KnobEffect(name, knob, FORWARDS, Limit.UNKNOWN, how)
    if name in _REST_FLAGS:
        return KnobEffect(name, knob, ("rest",), Limit.PARTS, "the time between the forwards")
    return KnobEffect(name, knob, (), Limit.UNKNOWN, "unknown")


def _collective(study: Study, configuration: Configuration, knob: Knob) -> KnobEffect:
    parts = collective_parts(study, configuration)
    if not parts:
        return KnobEffect(
            knob.name, knob, (), Limit.NOTHING, "no effect: one GPU has no collectives"
        )
    where = "verify, draft and draft extend" if len(parts) > 1 else "verify"
    if not configuration.speculation.enabled:
        where = "the decode forward"
    how = f"the collectives in {where}"
    if knob.name in VARIABLES and may_have_own_kernel(study, configuration):
        how += f"; {OWN_KERNEL}"
    return KnobEffect(knob.name, knob, parts, Limit.PARTS, how, collective=True)


def _placement(study: Study, configuration: Configuration) -> Iterator[KnobEffect]:
    if tp_size(study, configuration) < 2 or not _has_draft(configuration):
        return
    sizes = study.space.draft_tp or ()
    how = (
        "draft and draft extend; gains less than their share, because the draft still runs and "
        "fewer GPUs read more of its weights"
    )
    found = KnobEffect(
        DRAFT_TP.name, DRAFT_TP, DRAFTING, Limit.PARTS, how, varied=len(set(sizes)) > 1
    )
    yield replace(found, choices=_others(sizes, configuration.draft_tp))


def _drafting(configuration: Configuration, knob: Knob, how: str) -> KnobEffect:
    if not _has_draft(configuration):
        return KnobEffect(knob.name, knob, (), Limit.NOTHING, "no effect: there is no draft model")
    return KnobEffect(knob.name, knob, DRAFTING, Limit.PARTS, how)


def _drafts(study: Study, configuration: Configuration) -> Iterator[KnobEffect]:
    speculation = configuration.speculation
    if not speculation.enabled:
        return
    parts = [p for p in study.space.speculation if p.canonical_algorithm == speculation.algorithm]
    known = ALGORITHMS.get(speculation.algorithm)
    tree = known is not None and known.shape is Shape.TREE
    adaptive = dict(configuration.flags).get(_ADAPTIVE)
    chain = tree and speculation.topk == 1 and not adaptive
    for name in ("num_steps", "topk", "num_draft_tokens"):
        if name == "num_draft_tokens" and chain:
            continue  # they follow the steps
        now = getattr(speculation, name)
        met = {value for part in parts for value in getattr(part, name) or () if value != now}
        others = tuple(sorted(met))
        if not others:
            continue
        knob = Knob(DRAFT.kind, name)
        if chain and name == "num_steps":
            how = "draft, the width of verify, and the accept length"
            yield KnobEffect(name, knob, FORWARDS, Limit.DEPTH, how, choices=others)
        elif chain and name == "topk":
            how = "the accept length, and the width of verify"
            yield KnobEffect(name, knob, FORWARDS, Limit.WIDTH, how, choices=others)
        else:
            how = "forwards and accept length; no bound is known"
            yield KnobEffect(name, knob, FORWARDS, Limit.UNKNOWN, how, choices=others)


def _has_draft(configuration: Configuration) -> bool:
    known = ALGORITHMS.get(configuration.speculation.algorithm)
    return known is not None and known.has_draft


def _nccl_unused(study: Study, configuration: Configuration, trials: Iterable[Trial]) -> str | None:
    """Reason why decoding does not use NCCL here; `None` if it may."""
    ipc = {**study.server.env, **dict(configuration.env)}.get(PCIE_IPC)
    if isinstance(ipc, str) and ipc.lower() in YES:
        return "no effect: FlashInfer's kernel handles decoding"
    plain = without_nccl(configuration)
    for trial in trials:
        seen = trial.failure is not None and trial.failure.kind == NCCL_UNUSED
        if seen and without_nccl(trial.configuration) == plain:
            return "no effect: SGLang's own all-reduce kernel handles decoding"
    return None
