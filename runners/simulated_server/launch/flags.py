"""Flags: SGLang's command line, and the values that SGLang 0.5.23 runs with."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from runners.simulated_server.launch.speculative_flags import (
    FlagsRefusedError,
    Resolving,
    in_hook,
    resolve_algorithm,
)

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
            flags = flags[:1]  # argparse adds the --no- form itself
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
    """The flags that were given, by destination; those left out are absent.

    A flag that SGLang 0.5.23 does not know, or a value that it refuses, ends the process as
    SGLang does: the usage and `error: ...` on stderr, exit status 2.
    """
    given = vars(_parser().parse_args(list(argv)))
    if "config" in given:
        _parser().error("argument --config: not supported by the simulated server; give flags")
    return given


CHAIN_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
"""The algorithms that draft step by step (NEXTN is another name of EAGLE); the others draft all
tokens of a verify at once."""

MODELLED_ALGORITHMS = CHAIN_ALGORITHMS | {"NGRAM", "DFLASH"}
"""The algorithms that the simulation has a model of."""

CONTEXT_LENGTH = 262_144
"""Tokens that the simulated models were made for."""

CHUNKED_PREFILL_SIZE = 8192
"""Most tokens of one prefill, where no flag says otherwise."""

_KNOWN_TO_SGLANG = frozenset({"DSPARK", "UNO", "FROZEN_KV_MTP", "NONE"})
_DEFAULT_MAX_RUNNING_REQUESTS = 256
_PAGE_SIZES = {"flashmla": 64, "trtllm_mha": 64}
_LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


@dataclass(frozen=True, slots=True)
class ResolvedFlags:
    """What the server runs.

    Attributes:
        values: The flags that were given or rewritten, by destination.
        algorithm: `None` without speculation.
        num_steps: Draft steps; 0 without speculation.
        topk: Branches per step; 0 without speculation.
        num_draft_tokens: Tokens that a verify checks; 0 without speculation.
        max_running_requests: Requests that run at once.
        warnings: What SGLang logs while it rewrites.
        attention_backend: What decodes, given or SGLang's choice.
    """

    values: dict[str, Any]
    algorithm: str | None
    num_steps: int
    topk: int
    num_draft_tokens: int
    max_running_requests: int
    warnings: tuple[str, ...] = field(default=())
    attention_backend: str = "flashinfer"

    @property
    def tree_fits(self) -> bool:
        """Whether the drafts can fill the tree; SGLang finds out in its warm-up only."""
        if self.algorithm not in CHAIN_ALGORITHMS:
            return True
        pool = self.topk + (self.num_steps - 1) * self.topk**2
        return self.num_draft_tokens - 1 <= pool

    @property
    def tree_too_narrow(self) -> bool:
        """Whether a tree has fewer tokens than a path through it: dies in the warm-up too."""
        tree = self.algorithm in CHAIN_ALGORITHMS and self.topk > 1
        return tree and self.num_draft_tokens < self.num_steps + 1

    @property
    def adaptive(self) -> bool:
        """Whether the steps follow the acceptance while it serves."""
        return bool(self.values.get("speculative_adaptive"))

    @property
    def tp_size(self) -> int:
        """Ranks of the target."""
        return int(self.values.get("tp_size", 1))

    @property
    def draft_attention_backend(self) -> str:
        """Attention backend of the draft."""
        return str(self.values.get("speculative_draft_attention_backend") or self.attention_backend)

    @property
    def has_draft(self) -> bool:
        """Whether a draft model of its own was named."""
        return self.values.get("speculative_draft_model_path") is not None


def resolve(given: dict[str, Any]) -> ResolvedFlags:
    """Rewrites the flags as SGLang does.

    Args:
        given: The flags that were given, by destination.

    Raises:
        FlagsRefusedError: SGLang refuses them.
    """
    values = dict(given)
    _check_context(values.get("context_length"))
    cpu = values.get("device") == "cpu"
    backend = str(values.get("attention_backend", "intel_amx" if cpu else "flashinfer"))
    if backend in _PAGE_SIZES:
        values.setdefault("page_size", _PAGE_SIZES[backend])
    if values.get("speculative_algorithm") is None:
        _check_pages(values)
        limit = values.get("max_running_requests") or _DEFAULT_MAX_RUNNING_REQUESTS
        return ResolvedFlags(values, None, 0, 0, 0, limit, (), backend)
    values["speculative_algorithm"] = algorithm = _algorithm(str(values["speculative_algorithm"]))
    if values.get("speculative_draft_model_path") is not None:
        values.setdefault("speculative_draft_model_revision", "main")
    resolving = Resolving(values, algorithm, backend, cpu=cpu)
    resolve_algorithm(resolving)
    _check_pages(values)
    return ResolvedFlags(
        values,
        algorithm,
        int(values["speculative_num_steps"]),
        int(values["speculative_eagle_topk"]),
        int(values["speculative_num_draft_tokens"]),
        int(values["max_running_requests"]),
        tuple(resolving.warnings),
        backend,
    )


def _algorithm(asked: str) -> str:
    algorithm = asked.upper()
    if algorithm == "NEXTN":
        return "EAGLE"
    if algorithm in MODELLED_ALGORITHMS:
        return algorithm
    if algorithm in _KNOWN_TO_SGLANG:
        raise in_hook(
            f"NotImplementedError: the simulated server has no model of {algorithm}; it knows "
            f"{', '.join(sorted(MODELLED_ALGORITHMS))}"
        )
    raise FlagsRefusedError(
        f"ValueError: Unknown speculative algorithm name: {algorithm}", "unknown_algorithm"
    )


def _check_pages(values: dict[str, Any]) -> None:
    """Chunks of a prefill end where pages do (0.5.23, `validation_hook.py`, line 244)."""
    chunk = int(values.get("chunked_prefill_size") or CHUNKED_PREFILL_SIZE)
    page = values.get("page_size")
    if page is None or chunk <= 0 or values.get("disaggregation_mode") == "decode":
        return
    if page == 0:
        raise FlagsRefusedError("ZeroDivisionError: integer modulo by zero", "page_size_zero")
    if chunk % page:
        raise FlagsRefusedError(
            "AssertionError: chunked_prefill_size must be divisible by page_size",
            "chunk_not_of_pages",
        )


def _check_context(asked: int | None) -> None:
    if asked is None or asked <= CONTEXT_LENGTH:
        return
    if os.environ.get(_LONGER, "").lower() in {"1", "true"}:
        return
    raise FlagsRefusedError(
        f"ValueError: Warning: User-specified context_length ({asked}) is greater than the derived "
        f"context_length ({CONTEXT_LENGTH}). This may lead to incorrect model outputs or CUDA "
        "errors. Note that the derived context_length may differ from max_position_embeddings in "
        "the model's config. To allow overriding this maximum, set the env var "
        f"{_LONGER}=1",
        "context_too_long",
    )
