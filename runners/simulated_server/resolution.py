"""SGLang's own rewrites of its flags before it starts, as far as they matter for speculation.

Read in SGLang 0.5.23, `srt/arg_groups/speculative_hook.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CHAIN_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
"""The algorithms that the simulation has a model of (NEXTN is another name of EAGLE)."""

_KNOWN_TO_SGLANG = frozenset({"NGRAM", "DFLASH", "DSPARK", "UNO", "FROZEN_KV_MTP", "NONE"})
_PAGE_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
_DEFAULT_MAX_RUNNING_REQUESTS = 256


class FlagsRefusedError(Exception):
    """SGLang would end here with a traceback and exit status 1.

    Attributes:
        last_line: The traceback's last line.
        frames: Where SGLang raises it, outermost first, as `(file, function)`.
    """

    def __init__(self, last_line: str, *frames: tuple[str, str]) -> None:
        super().__init__(last_line)
        self.last_line = last_line
        self.frames = frames


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
    """

    values: dict[str, Any]
    algorithm: str | None
    num_steps: int
    topk: int
    num_draft_tokens: int
    max_running_requests: int
    warnings: tuple[str, ...] = field(default=())

    @property
    def tree_fits(self) -> bool:
        """Whether the drafts can fill the tree; SGLang finds out in its warm-up only."""
        if self.algorithm is None:
            return True
        pool = self.topk + (self.num_steps - 1) * self.topk**2
        return self.num_draft_tokens - 1 <= pool


_HOOK = ("srt/arg_groups/speculative_hook.py", "_handle_eagle_family")


def resolve(given: dict[str, Any], *, attention_backend: str = "flashinfer") -> ResolvedFlags:
    """Rewrites the flags as SGLang does.

    Args:
        given: The flags that were given, by destination.
        attention_backend: What is used where no flag says.

    Raises:
        FlagsRefusedError: SGLang refuses them.
    """
    values = dict(given)
    asked = values.get("speculative_algorithm")
    limit = values.get("max_running_requests")
    if asked is None:
        return ResolvedFlags(values, None, 0, 0, 0, limit or _DEFAULT_MAX_RUNNING_REQUESTS)
    algorithm = str(asked).upper()
    if algorithm == "NEXTN":
        algorithm = "EAGLE"
    if algorithm not in CHAIN_ALGORITHMS:
        if algorithm in _KNOWN_TO_SGLANG:
            raise FlagsRefusedError(
                f"NotImplementedError: the simulated server has no model of {algorithm}; it knows "
                f"{', '.join(sorted(CHAIN_ALGORITHMS))}"
            )
        raise FlagsRefusedError(
            f"ValueError: Unknown speculative algorithm name: {algorithm}",
            ("srt/arg_groups/speculative_hook.py", "handle_speculative_decoding"),
            ("srt/speculative/spec_info.py", "from_string"),
        )
    warnings = []
    if limit is None:
        limit = 48
        warnings.append(
            "Max running requests is reset to 48 for speculative decoding. You can override this "
            "by explicitly setting --max-running-requests."
        )
    steps, topk, width = _shape(values, algorithm)
    if topk == 1 and width != steps + 1:
        width = steps + 1
        warnings.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1"
        )
    if width is None:
        raise FlagsRefusedError(
            "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
            ("srt/managers/tokenizer_manager.py", "init_model_config"),
            ("srt/managers/utils.py", "compute_num_reserved_tokens"),
        )
    _check_pages(values, topk, attention_backend)
    values |= {
        "speculative_algorithm": algorithm,
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": width,
        "max_running_requests": limit,
        "speculative_draft_model_revision": values.get("speculative_draft_model_revision", "main"),
    }
    return ResolvedFlags(values, algorithm, steps, topk, width, limit, tuple(warnings))


def _shape(values: dict[str, Any], algorithm: str) -> tuple[int, int, int | None]:
    steps = values.get("speculative_num_steps")
    topk = values.get("speculative_eagle_topk")
    width = values.get("speculative_num_draft_tokens")
    if steps is None:
        if topk is not None or width is not None:
            raise FlagsRefusedError("AssertionError", _HOOK)
        name = str(values.get("model_path", "")).lower()
        wide = algorithm != "STANDALONE" and ("llama" in name or "grok" in name)
        return (5, 4, 8) if wide else (3, 1, 4)
    if topk is None:
        raise FlagsRefusedError(
            "TypeError: '>' not supported between instances of 'NoneType' and 'int'", _HOOK
        )
    return steps, topk, width


def _check_pages(values: dict[str, Any], topk: int, default_backend: str) -> None:
    backend = values.get("attention_backend", default_backend)
    if backend == "trtllm_mha" and topk > 1:
        raise FlagsRefusedError(
            "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.", _HOOK
        )
    if topk > 1 and values.get("page_size", 1) > 1 and backend not in _PAGE_TREE_BACKENDS:
        raise FlagsRefusedError(
            "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on "
            f"{_PAGE_TREE_BACKENDS}; got attention_backend={backend!r}. Use page_size == 1 or one "
            "of those backends.",
            _HOOK,
        )
