"""Names and values of SGLang flags and environment variables, in canonical spelling."""

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
    """Canonical name of a flag: no leading dashes, no underscores, SGLang's first spelling."""
    plain = name.strip().lstrip("-").replace("_", "-")
    return _ALIASES.get(plain, plain)


def canonical_flag_value(value: Value) -> Value:
    """Canonical value of a flag.

    `False` becomes `None`: a switch that is off is a switch that is not given. (A flag that is on
    by default has a separate `no-...` or `disable-...` flag.) A quoted whole number becomes a
    number, which is equal on a command line.
    """
    if value is False:
        return None
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return value


def canonical_env_value(value: Value) -> str | None:
    """Canonical value of a variable: text, or `None` for a removed variable."""
    return None if value is None else str(value)


def canonical_flags(flags: Mapping[str, Value]) -> dict[str, Value]:
    """Flags with canonical names and values, sorted by name."""
    named = {canonical_flag(name): canonical_flag_value(value) for name, value in flags.items()}
    return dict(sorted(named.items()))


def distinct(values: Iterable[Value]) -> tuple[Value, ...]:
    """Values without repeats, in order. `1`, `1.0` and `True` differ."""
    seen: dict[tuple[type, Value], Value] = {}
    for value in values:
        seen.setdefault((type(value), value), value)
    return tuple(seen.values())
