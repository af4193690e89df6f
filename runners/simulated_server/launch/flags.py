"""Flags: SGLang's command line, and the values that SGLang 0.5.23 makes of it.

Source: SGLang 0.5.23, `srt/arg_groups/`.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from runners.simulated_server.launch.speculative_flags import (
    FlagsRefusedError,
    FlagState,
    resolve_algorithm,
)
from search_spaces.algorithms import ALIASES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_SPECIFICATION = files("search_spaces") / "data" / "arguments_0.5.23.json"

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def _readable_int(text: str) -> int:
    factor = _SUFFIXES.get(text[-1:], 1)
    return int(text) if factor == 1 else int(float(text[:-1]) * factor)


def _json(text: str) -> object:
    return cast("object", json.loads(text))


def _nullable(text: str) -> str | None:
    return None if text.lower() in {"none", "null"} else text


_TYPES: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "human_readable_int": _readable_int,
    "nullable_str": _nullable,
    "loads": _json,
    "json_list_type": _json,
    "parse_cuda_graph_config_arg": _json,
    "parse_cuda_graph_backend_arg": str,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang serve", argument_default=argparse.SUPPRESS)
    for entry in json.loads(_SPECIFICATION.read_text("utf-8")):
        flags, action = entry["flags"], entry.get("action", "_StoreAction")
        options: dict[str, Any] = {"dest": entry["dest"], "default": argparse.SUPPRESS}
        if action == "BooleanOptionalAction":
            flags = flags[:1]  # argparse adds the --no- form
            options["action"] = argparse.BooleanOptionalAction
        elif entry.get("nargs") == 0:
            options["action"] = "store_true"
        else:
            options["type"] = _TYPES[entry.get("type", "str")]
            options["nargs"] = entry.get("nargs")
            options["choices"] = entry.get("choices")
        if entry["dest"] == "model_path":
            options["required"] = True
        parser.add_argument(*flags, **options)
    return parser


def parse_flags(argv: Sequence[str]) -> dict[str, Any]:
    """Parse the command line; return the given flags by destination.

    An unknown flag or a wrong value ends the process as in SGLang: usage and `error: ...` on
    stderr, exit status 2.
    """
    given = vars(_parser().parse_args(list(argv)))
    if "config" in given:
        _parser().error(
            "argument --config: not supported by the simulated server; pass the flags themselves"
        )
    return given


CHAIN_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
"""Algorithms that draft step by step. The others draft all tokens of a verify at once."""

MODELLED_ALGORITHMS = CHAIN_ALGORITHMS | {"NGRAM", "DFLASH"}
"""Algorithms that the simulation has a model of."""

CONTEXT_LENGTH = 262_144
"""Context length of the simulated models, in tokens."""

CHUNKED_PREFILL_SIZE = 8192
"""Default of `--chunked-prefill-size`."""

_NOT_MODELLED = frozenset({"DSPARK", "UNO", "FROZEN_KV_MTP", "NONE"})
_DEFAULT_MAX_RUNNING_REQUESTS = 256
_PAGE_SIZES = {"flashmla": 64, "trtllm_mha": 64}
_LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


@dataclass(frozen=True, slots=True)
class ResolvedFlags:
    """Flags that the server runs with.

    Attributes:
        values: Given and rewritten flags by destination.
        algorithm: `None` without speculation.
        num_steps: Draft steps; 0 without speculation.
        topk: Branches per step; 0 without speculation.
        num_draft_tokens: Tokens per verify; 0 without speculation.
        max_running_requests: Limit of running requests.
        attention_backend: The given or default attention backend.
    """

    values: dict[str, Any]
    algorithm: str | None
    num_steps: int
    topk: int
    num_draft_tokens: int
    max_running_requests: int
    warnings: tuple[str, ...] = ()
    attention_backend: str = "flashinfer"

    @property
    def tree_fits(self) -> bool:
        """Whether the tree has a node for each draft; otherwise SGLang crashes in its warm-up."""
        if self.algorithm not in CHAIN_ALGORITHMS:
            return True
        return self.num_draft_tokens - 1 <= self.topk + (self.num_steps - 1) * self.topk**2

    @property
    def tree_too_narrow(self) -> bool:
        """Whether a path is longer than the tree is wide; then SGLang crashes in its warm-up."""
        tree = self.algorithm in CHAIN_ALGORITHMS and self.topk > 1
        return tree and self.num_draft_tokens < self.num_steps + 1

    @property
    def adaptive(self) -> bool:
        return bool(self.values.get("speculative_adaptive"))

    @property
    def tp_size(self) -> int:
        return int(self.values.get("tp_size", 1))

    @property
    def draft_attention_backend(self) -> str:
        return str(self.values.get("speculative_draft_attention_backend") or self.attention_backend)

    @property
    def has_draft(self) -> bool:
        return self.values.get("speculative_draft_model_path") is not None


def resolve(given: dict[str, Any]) -> ResolvedFlags:
    """Rewrite the given flags as SGLang does.

    Raises:
        FlagsRefusedError: SGLang refuses the flags.
    """
    values = dict(given)
    context = values.get("context_length")
    allowed = os.environ.get(_LONGER, "").lower() in {"1", "true"}
    if context is not None and context > CONTEXT_LENGTH and not allowed:
        known = {"derived": CONTEXT_LENGTH, "variable": _LONGER}
        raise FlagsRefusedError("context_too_long", values | known)
    cpu = values.get("device") == "cpu"
    backend = str(values.get("attention_backend", "intel_amx" if cpu else "flashinfer"))
    if backend in _PAGE_SIZES:
        values.setdefault("page_size", _PAGE_SIZES[backend])
    if values.get("speculative_algorithm") is None:
        _check_pages(values)
        limit = values.get("max_running_requests") or _DEFAULT_MAX_RUNNING_REQUESTS
        return ResolvedFlags(values, None, 0, 0, 0, limit, (), backend)
    algorithm = str(values["speculative_algorithm"]).upper()
    algorithm = values["speculative_algorithm"] = ALIASES.get(algorithm, algorithm)
    if algorithm not in MODELLED_ALGORITHMS:
        name = "not_simulated" if algorithm in _NOT_MODELLED else "unknown_algorithm"
        known = {"algorithm": algorithm, "known": ", ".join(sorted(MODELLED_ALGORITHMS))}
        raise FlagsRefusedError(name, known)
    if values.get("speculative_draft_model_path") is not None:
        values.setdefault("speculative_draft_model_revision", "main")
    state = FlagState(values, algorithm, backend, cpu=cpu)
    resolve_algorithm(state)
    _check_pages(values)
    return ResolvedFlags(
        values,
        algorithm,
        int(values["speculative_num_steps"]),
        int(values["speculative_eagle_topk"]),
        int(values["speculative_num_draft_tokens"]),
        int(values["max_running_requests"]),
        tuple(state.warnings),
        backend,
    )


def _check_pages(values: dict[str, Any]) -> None:
    """Check that prefill chunks end with a page (`validation_hook.py:244`).

    Raises:
        FlagsRefusedError: SGLang refuses the sizes.
    """
    chunk = int(values.get("chunked_prefill_size") or CHUNKED_PREFILL_SIZE)
    page = values.get("page_size")
    if page is None or chunk <= 0 or values.get("disaggregation_mode") == "decode":
        return
    if page == 0:
        raise FlagsRefusedError("page_size_zero", values)
    if chunk % page:
        raise FlagsRefusedError("chunk_not_of_pages", values)
