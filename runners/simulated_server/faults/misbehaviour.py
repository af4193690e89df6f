"""The ways in which a simulated server can go wrong, on demand.

A profile's `misbehave`, and `TUNER_SIM_MISBEHAVE`, are lists of these. `docs/simulated-server.md`
has a table of all of them, with what the tuner makes of each; the tests read that table.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

When = dict[str, Any]
"""A condition: names and the values they must have, all of them.

A name is a flag (`num_steps` and `topk` are short for SGLang's), or a variable where it is in
capitals. `null` means: not set.
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
"""What a server can die of, by phase; the first is the one that is meant where none is given."""

HANG_PHASES = frozenset(
    {"distributed", "load_weight", "load_draft", "kv_cache", "cuda_graph", "warmup", "serving"}
)


class Misbehaviour(BaseModel):
    """One way to go wrong.

    Attributes:
        when: In which configuration; an empty condition is every one.
        kind: What happens.
        phase: Where, for `exit` and `hang`. `idle` is after the last request, `flush` the next
            time that the cache is emptied after a request.
        cause: What an `exit` dies of; the phase's first one if not given.
        after_requests: This many requests are served well before it happens.
        concurrency: Only while at least so many requests run at once.
        padded: Only while the requests that run are no power of two: the batch is padded to one.
        prefix_hit: Only at a request whose prompt begins as an earlier one did.
        health: For a server that no longer answers: whether `/health` still says 200 (`ok`), as
            SGLang's has been seen to, or 503 after 20 seconds (`dead`).
        delay_s: Simulated seconds: until it happens (`exit` and `hang` while serving, `idle`), or
            how long it takes (`slow_sigterm`).
        lingers: Whether a server that dies while it serves waits 60 simulated seconds for core
            dumps before it ends, as SGLang does where a scheduler still lives.
        share: Of the requests, or health checks, that it happens to.
        factor: How much slower: all (`slow`), all per 100 requests (`drift`), the draft's extend
            (`switch_eager`) or the verify (`switch_slow`) of a switched state.
        marked: Whether an orphan still carries the launch's mark in its environment.
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
                raise ValueError(f"exit needs a phase: one of {', '.join(CAUSES)}")
            if self.cause is not None and self.cause not in CAUSES[self.phase]:
                raise ValueError(
                    f"exit in {self.phase} knows the causes {', '.join(CAUSES[self.phase])}; "
                    f"got {self.cause!r}"
                )
        elif self.kind == "hang":
            if self.phase not in HANG_PHASES:
                raise ValueError(f"hang needs a phase: one of {', '.join(sorted(HANG_PHASES))}")
        elif self.phase is not None:
            raise ValueError(f"{self.kind} takes no phase: it happens while serving, or at the end")
        if self.cause is not None and self.kind != "exit":
            raise ValueError(f"{self.kind} takes no cause")
        return self

    @property
    def dies_of(self) -> str:
        """The cause, given or meant; only for `exit`."""
        if self.phase is None:
            raise ValueError(f"{self.kind} has no cause")
        return self.cause or CAUSES[self.phase][0]


def holds(when: When, facts: dict[str, Any]) -> bool:
    """Whether a condition holds; a fact that is absent counts as `None`."""
    return all(_same(facts.get(name.replace("-", "_")), value) for name, value in when.items())


def _same(fact: object, value: object) -> bool:
    if fact is None or value is None:
        return fact is None and value is None
    return bool(fact == value) or str(fact) == str(value)
