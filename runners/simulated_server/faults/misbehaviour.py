"""Faults of a simulated server, on request.

A profile's `misbehave` and `TUNER_SIM_MISBEHAVE` are lists of faults. `docs/simulated-server.md`
has a table of all faults and the tuner's reaction to each; the tests read that table.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

When = dict[str, Any]
"""A condition: names and their required values.

A name is a flag (`num_steps` and `topk` abbreviate SGLang's), or an environment variable in
capitals. `null` means "not set".
"""

Kind = Literal[
    "exit",
    "hang",
    "dead_scheduler",
    "restart",
    "orphan",
    "ignore_sigterm",
    "slow_sigterm",
    "garbage",
    "acceptance_missing",
    "acceptance_stale",
    "acceptance_impossible",
    "acceptance_inconsistent",
    "cached_tokens",
    "wrong_tokens",
    "slow",
    "drift",
    "jit",
    "http_500",
    "reset",
    "health_flaps",
    "plugin_missing",
    "plugin_refused",
    "plugin_half",
    "switch_ignored",
    "switch_undone",
    "switch_eager",
    "switch_slow",
]
Phase = Literal[
    "arguments",
    "distributed",
    "load_weight",
    "load_draft",
    "kv_cache",
    "cuda_graph",
    "warmup",
    "serving",
    "idle",
    "flush",
]

KINDS: tuple[str, ...] = get_args(Kind)

_CRASHES = (
    "killed",
    "cuda_oom",
    "illegal_access",
    "illegal_instruction",
    "nan_logits",
    "gather_index",
    "watchdog",
)
CAUSES: dict[str, tuple[str, ...]] = {
    "arguments": ("port_taken", "model_not_found", "draft_not_found", "trust_remote_code"),
    "distributed": ("nccl_invalid_usage", "nccl_system_error", "nccl_out_of_memory", "killed"),
    "load_weight": ("cuda_oom", "killed"),
    "load_draft": ("draft_mismatch", "draft_key_missing", "cuda_oom", "killed"),
    "kv_cache": ("kv_pool_too_small", "no_room_for_kv", "cuda_oom", "missing_module", "killed"),
    "cuda_graph": (
        "cuda_oom",
        "states_oom",
        "illegal_access",
        "nccl_invalid_usage",
        "nccl_out_of_memory",
        "missing_module",
        "killed",
    ),
    "warmup": (
        "cuda_oom",
        "illegal_access",
        "draft_mismatch",
        "missing_mask",
        "replay_ssm",
        "kernel_assertion",
        "killed",
    ),
    "serving": _CRASHES,
    "idle": _CRASHES,
    "flush": _CRASHES,
}
"""Causes of a crash by phase; the first cause is the default."""

HANG_PHASES = frozenset(
    {"distributed", "load_weight", "load_draft", "kv_cache", "cuda_graph", "warmup", "serving"}
)


class Misbehaviour(BaseModel):
    """One fault.

    Attributes:
        when: Configurations with the fault; an empty condition holds for all.
        phase: Phase of an `exit` or a `hang`. `idle` follows the last request. `flush` is the first
            flush of the cache after a request.
        cause: Cause of an `exit`; defaults to the phase's first cause.
        after_requests: Requests that are served correctly before the fault.
        concurrency: Least number of running requests for the fault.
        padded: Whether the fault needs a padded batch (its size is no power of two).
        prefix_hit: Whether the fault needs a request with a cached prefix.
        health: Answer of `/health` while the scheduler is dead: 200 (`ok`, observed with SGLang),
            or 503 after 20 seconds (`dead`).
        delay_s: Simulated seconds before the fault (`exit` and `hang` while serving, `idle`), or
            the duration of `slow_sigterm`.
        lingers: Whether a crash while serving waits 60 simulated seconds for core dumps, as SGLang
            does if a scheduler still lives.
        share: Share of the requests or health checks with the fault.
        factor: Slow-down of all forwards (`slow`), of all forwards per 100 requests (`drift`), or
            of the draft's extend (`switch_eager`) or verify (`switch_slow`) in a switched state.
        marked: Whether an orphan has the launch's mark in its environment.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    when: When = {}
    kind: Kind
    phase: Phase | None = None
    cause: str | None = None
    after_requests: Annotated[int, Field(ge=0)] = 0
    concurrency: Annotated[int, Field(ge=1)] = 1
    padded: bool = False
    prefix_hit: bool = False
    health: Literal["ok", "dead"] = "dead"
    delay_s: Annotated[float, Field(ge=0.0)] = 0.0
    lingers: bool = False
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    factor: Annotated[float, Field(gt=0.0)] = 1.5
    marked: bool = True

    @model_validator(mode="after")
    def _fits(self) -> Misbehaviour:
        if self.kind == "exit":
            if self.phase is None:
                raise ValueError(f"exit has no phase; use one of {', '.join(CAUSES)}")
            if self.cause is not None and self.cause not in CAUSES[self.phase]:
                raise ValueError(
                    f"{self.cause!r} is not a cause of an exit in {self.phase}; use one of "
                    f"{', '.join(CAUSES[self.phase])}"
                )
        elif self.kind == "hang":
            if self.phase not in HANG_PHASES:
                raise ValueError(f"hang has no phase; use one of {', '.join(sorted(HANG_PHASES))}")
        elif self.phase is not None:
            raise ValueError(f"{self.kind} takes no phase; remove it")
        if self.cause is not None and self.kind != "exit":
            raise ValueError(f"{self.kind} takes no cause; remove it")
        return self

    @property
    def crash_cause(self) -> str:
        """The given or default cause of an `exit`."""
        if self.phase is None:
            raise ValueError(f"{self.kind} has no cause")
        return self.cause or CAUSES[self.phase][0]


def holds(when: When, facts: dict[str, Any]) -> bool:
    """Return whether a condition holds; an absent fact counts as `None`."""
    return all(_same(facts.get(name.replace("-", "_")), value) for name, value in when.items())


def _same(fact: object, value: object) -> bool:
    if fact is None or value is None:
        return fact is None and value is None
    return bool(fact == value) or str(fact) == str(value)
