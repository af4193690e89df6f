"""Names and values of SGLang flags and environment variables, in one spelling each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from search_spaces.configuration import Value

_ALIASES = {
    "model": "model-path",
    "nccl-init-addr": "dist-init-addr",
    "tp": "tp-size",
    "tensor-parallel-size": "tp-size",
    "decode-context-parallel-size": "dcp-size",
    "pp": "pp-size",
    "pipeline-parallel-size": "pp-size",
    "dp": "dp-size",
    "data-parallel-size": "dp-size",
    "attention-data-parallel-size": "attn-dp-size",
    "attention-context-parallel-size": "attn-cp-size",
    "moe-data-parallel-size": "moe-dp-size",
    "grpc-http-sidecar-port": "smg-http-sidecar-port",
    "context-bucket": "cuda-graph-prefill-max-context",
    "speculative-draft-model": "speculative-draft-model-path",
    "ep": "ep-size",
    "expert-parallel-size": "ep-size",
    "enable-hicache": "enable-hierarchical-cache",
    "hierarchical-sparse-attention-extra-config": "hisparse-config",
}
"""SGLang's second names (0.5.23, `server_args.py`; `tp`, `pp` and `dp` are older versions')."""

_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})")

BELONGS_ELSEWHERE = {
    "model-path": "write it as `model: {path: ...}`",
    "speculative-draft-model-path": "write it as `model: {draft: ...}`",
    "speculative-algorithm": (
        "write `algorithm` in a sub-space: `space: {speculation: [{algorithm: EAGLE3, ...}]}`"
    ),
    "speculative-num-steps": "write `num_steps` in a sub-space under `space.speculation`",
    "speculative-eagle-topk": "write `topk` in a sub-space under `space.speculation`",
    "speculative-num-draft-tokens": (
        "write `num_draft_tokens` in a sub-space under `space.speculation`"
    ),
    "speculative-dflash-block-size": (
        "write it as `num_draft_tokens` in the DFLASH sub-space under `space.speculation`"
    ),
    "speculative-dspark-block-size": (
        "write it, plus 1, as `num_draft_tokens` in the DSPARK sub-space under `space.speculation`"
    ),
}
"""Flags that have a place of their own in a study file."""


def canonical_flag(name: str) -> str:
    """A flag's one spelling: no leading dashes, no underscores, SGLang's first name for it."""
    plain = name.strip().lstrip("-").replace("_", "-")
    return _ALIASES.get(plain, plain)


def canonical_flag_value(value: Value) -> Value:
    """A flag's value in one spelling.

    `False` becomes `None`: a switch that is off is a switch that is not given. (A flag that is on
    by default is switched off by its own `no-...` or `disable-...` flag.) A whole number in quotes
    becomes a number: on a command line they are the same.
    """
    if value is False:
        return None
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return value


def canonical_env_value(value: Value) -> str | None:
    """A variable's value: text, or `None` for a variable that is removed."""
    return None if value is None else str(value)


def canonical_flags(flags: Mapping[str, Value]) -> dict[str, Value]:
    """Every flag in its one spelling, sorted by name."""
    named = {canonical_flag(name): canonical_flag_value(value) for name, value in flags.items()}
    return dict(sorted(named.items()))


def distinct(values: Iterable[Value]) -> tuple[Value, ...]:
    """The values without repeats, in order. `1`, `1.0` and `True` are three values."""
    seen: dict[tuple[type, Value], Value] = {}
    for value in values:
        seen.setdefault((type(value), value), value)
    return tuple(seen.values())
