"""Flags of speculative decoding: SGLang's rewrites and refusals, in SGLang's order.

Source: SGLang 0.5.23, `srt/arg_groups/speculative_hook.py`. The numbers that the legality rules of
`search_spaces` know too (default shapes, algorithms) come from there; the texts of the refusals are
`data/crashes/refusals.yaml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.simulated_server.engine.adaptive import candidate_steps
from search_spaces.algorithms import NGRAM_DRAFT_TOKENS, default_speculation, family_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_REFUSALS = Path(__file__).parents[1] / "data" / "crashes" / "refusals.yaml"
_HOOK = "srt/arg_groups/speculative_hook.py"
_MAX_RUNNING_REQUESTS = 48
_PAGE_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
_NGRAM_BREADTH = 10
_DFLASH_BLOCK = 16
_HEADS = frozenset({"EAGLE", "EAGLE3"})
_BLOCK_VERIFIED = _HEADS | {"DFLASH", "DSPARK"}


class FlagsRefusedError(Exception):
    """SGLang refuses the flags with a traceback and exit status 1.

    Args:
        name: Name of the refusal in `data/crashes/refusals.yaml`.
        values: Values that its message quotes.

    Attributes:
        last_line: Last line of the traceback.
        trace: File of the traceback in `data/crashes`.
        frame: Last frame as `(file, line, function, source)`, if the file ends before it.
    """

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        import yaml  # noqa: PLC0415 - only a refusal needs it

        entry = yaml.safe_load(_REFUSALS.read_text())[name]
        self.last_line: str = entry["message"].format_map(values)
        self.trace: str = entry.get("traceback", "hook")
        self.frame: tuple[str, int, str, str] | None = None
        if "traceback" not in entry:
            function = entry.get("function", "handle_speculative_decoding")
            source = entry.get("source", "raise ValueError(")
            self.frame = (_HOOK, entry.get("line", 242), function, source)
        super().__init__(self.last_line)


class FlagState:
    """Flags between the command line and SGLang's final values.

    Attributes:
        values: Flags by destination; rewritten in place.
        algorithm: SGLang's name of the algorithm.
        backend: Attention backend.
        cpu: Whether the device is a CPU.
    """

    def __init__(self, values: dict[str, Any], algorithm: str, backend: str, *, cpu: bool) -> None:
        self.values = values
        self.algorithm = algorithm
        self.backend = backend
        self.cpu = cpu
        self.warnings: list[str] = []

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a flag's value
        return self.values.get(name)

    def set(self, **values: object) -> None:
        self.values.update(values)

    def refuse_if(self, broken: object, name: str, **more: object) -> None:
        """Refuse the flags if `broken` is true.

        Raises:
            FlagsRefusedError: The refusal `name`; its message may also quote `more`.
        """
        if broken:
            known = {"algorithm": self.algorithm, "backend": self.backend}
            raise FlagsRefusedError(
                name, self.values | known | {"page_size": self.page_size} | more
            )

    @property
    def attention_dp(self) -> bool:
        return bool(self["enable_dp_attention"]) and int(self["dp_size"] or 1) > 1

    @property
    def page_size(self) -> int:
        return int(self["page_size"] or 1)

    def limit_requests(self) -> None:
        if self["max_running_requests"] is None:
            self.set(max_running_requests=_MAX_RUNNING_REQUESTS)
            self.warnings.append(
                "Max running requests is reset to 48 for speculative decoding. You can override "
                "this by explicitly setting --max-running-requests."
            )

    def disable_overlap_on_cpu(self) -> None:
        if self.cpu and not self["disable_overlap_schedule"]:
            self.set(disable_overlap_schedule=True)
            self.warnings.append(
                "Overlap schedule is not implemented for speculative decoding on CPU."
            )


def resolve_algorithm(flags: FlagState) -> None:
    """Rewrite the flags of the algorithm.

    Raises:
        FlagsRefusedError: SGLang refuses the flags.
    """
    _resolve_block_verification(flags)
    window, sink = flags["speculative_draft_window_size"], flags["speculative_draft_sink_size"]
    flags.refuse_if(window is not None and window <= 0, "draft_window_not_positive")
    flags.refuse_if(sink is not None and sink < 0, "draft_sink_negative")
    flags.refuse_if(sink is not None and window is None, "draft_sink_without_window")
    if flags["speculative_adaptive"]:
        _resolve_adaptive(flags)
    if flags.algorithm == "NGRAM":
        _resolve_ngram(flags)
    elif flags.algorithm == "DFLASH":
        _resolve_dflash(flags)
    else:
        _resolve_tree(flags)


def _resolve_block_verification(flags: FlagState) -> None:
    if not flags["speculative_use_block_verification"]:
        return
    flags.refuse_if(flags.algorithm not in _BLOCK_VERIFIED, "block_verification_algorithm")
    flags.refuse_if(flags.cpu, "block_verification_cpu")
    if flags.algorithm in _HEADS:
        flags.set(speculative_use_rejection_sampling=True)


def _resolve_adaptive(flags: FlagState) -> None:
    topk = flags["speculative_eagle_topk"]
    reason = None
    if flags.algorithm not in _HEADS:
        reason = f"speculative_algorithm={flags.algorithm} (only EAGLE/EAGLE3 are supported)"
    elif topk not in {None, 1}:
        reason = f"speculative_eagle_topk={topk} (only topk=1 is supported)"
    elif flags.attention_dp:
        reason = (
            "attention DP is not supported (adaptive tier decisions are not synchronized across "
            "DP ranks)"
        )
    if reason is not None:
        flags.warnings.append(
            f"speculative_adaptive disabled: {reason}. Falling back to static speculative params."
        )
        flags.set(speculative_adaptive=False)
        return
    candidates: list[int] = []
    try:
        candidates = candidate_steps(flags["speculative_adaptive_config"])
    except OSError as error:
        values = {"errno": error.errno, "strerror": error.strerror}
        flags.refuse_if(error, "adaptive_config_unreadable", **values)
    except ValueError as error:
        flags.refuse_if(error, "adaptive_config_wrong", error=error)
    if topk is None:
        flags.set(speculative_eagle_topk=1)
    if flags["speculative_num_steps"] is None:
        flags.set(speculative_num_steps=candidates[len(candidates) // 2])
    steps = flags["speculative_num_steps"]
    flags.refuse_if(steps not in candidates, "adaptive_steps", candidates=candidates)
    flags.set(speculative_num_draft_tokens=steps + 1)


def _resolve_tree(flags: FlagState) -> None:
    standalone = flags.algorithm == "STANDALONE"
    flags.refuse_if(standalone and flags.attention_dp, "standalone_attention_dp")
    flags.limit_requests()
    flags.disable_overlap_on_cpu()
    if flags["disable_overlap_schedule"]:
        flags.warnings.append(
            "Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone speculative "
            "decoding."
        )
    if flags["enable_mixed_chunk"] and standalone:
        flags.set(enable_mixed_chunk=False)
        flags.warnings.append(
            "Mixed chunked prefill is disabled: STANDALONE speculative decoding does not support "
            "it."
        )
    _resolve_tree_shape(flags)
    flags.refuse_if(flags["speculative_num_draft_tokens"] is None, "draft_tokens_missing")


def _resolve_tree_shape(flags: FlagState) -> None:
    topk, tokens = flags["speculative_eagle_topk"], flags["speculative_num_draft_tokens"]
    if flags["speculative_num_steps"] is None:
        flags.refuse_if(topk is not None or tokens is not None, "steps_missing")
        family = family_of(str(flags["model_path"] or ""))
        default = default_speculation(flags.algorithm, family)
        topk, tokens = default.topk, default.num_draft_tokens
        flags.set(
            speculative_num_steps=default.num_steps,
            speculative_eagle_topk=topk,
            speculative_num_draft_tokens=tokens,
        )
    steps = flags["speculative_num_steps"]
    backends = (flags[f"{phase}_attention_backend"] for phase in ("prefill", "decode"))
    if "trtllm_mha" in [backend or flags.backend for backend in backends]:
        flags.refuse_if(topk is None, "trtllm_mha_topk_missing")
        flags.refuse_if(topk > 1, "trtllm_mha_tree")
    if flags["speculative_use_rejection_sampling"]:
        _check_rejection_sampling(flags)
    if topk == 1 and tokens != steps + 1:
        flags.warnings.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1"
        )
        flags.set(speculative_num_draft_tokens=steps + 1)
    flags.refuse_if(topk is None, "topk_missing")
    unpaged = flags.backend not in _PAGE_TREE_BACKENDS
    broken = topk > 1 and flags.page_size > 1 and unpaged
    flags.refuse_if(broken, "page_tree", backends=_PAGE_TREE_BACKENDS)


def _check_rejection_sampling(flags: FlagState) -> None:
    flags.refuse_if(flags.algorithm not in _HEADS, "rejection_sampling_algorithm")
    flags.refuse_if(flags["speculative_eagle_topk"] != 1, "rejection_sampling_tree")
    deterministic = flags["enable_deterministic_inference"]
    flags.refuse_if(deterministic and flags.cpu, "rejection_sampling_cpu")
    thresholds = [flags[f"speculative_accept_threshold_{name}"] for name in ("single", "acc")]
    flags.refuse_if(set(thresholds) - {None, 1.0}, "rejection_sampling_thresholds")


def _resolve_ngram(flags: FlagState) -> None:
    flags.disable_overlap_on_cpu()
    flags.limit_requests()
    breadth = int(flags["speculative_ngram_max_bfs_breadth"] or _NGRAM_BREADTH)
    flags.set(enable_mixed_chunk=False, speculative_eagle_topk=breadth)
    if flags["speculative_num_draft_tokens"] is None:
        flags.set(speculative_num_draft_tokens=NGRAM_DRAFT_TOKENS)
        flags.warnings.append(
            "speculative_num_draft_tokens is set to 12 by default for ngram speculative decoding. "
            "You can override this by explicitly setting --speculative-num-draft-tokens."
        )
    if flags["speculative_num_steps"] is None:
        flags.set(speculative_num_steps=int(flags["speculative_num_draft_tokens"]) // breadth)
    flags.warnings.append(
        "The mixed chunked prefill are disabled because of using ngram speculative decoding."
    )
    paged = breadth > 1 and flags.page_size > 1
    flags.refuse_if(paged and flags.backend != "flashinfer", "ngram_pages")
    flags.refuse_if(flags.attention_dp, "ngram_attention_dp")


def _resolve_dflash(flags: FlagState) -> None:
    flags.refuse_if(flags.cpu, "dflash_cpu")
    no_head = not flags["enable_dp_lm_head"]
    flags.refuse_if(flags.attention_dp and no_head, "dflash_attention_dp")
    flags.refuse_if(int(flags["pp_size"] or 1) != 1, "dflash_pipeline")
    flags.refuse_if(flags["speculative_draft_model_path"] is None, "dflash_draft_missing")
    for name in ("speculative_num_steps", "speculative_eagle_topk"):
        if flags[name] not in {None, 1}:
            flags.warnings.append(
                f"DFLASH only supports {name} == 1; overriding {name}={flags[name]} to 1."
            )
        flags.set(**{name: 1})
    block, tokens = flags["speculative_dflash_block_size"], flags["speculative_num_draft_tokens"]
    if block is not None:
        flags.refuse_if(block <= 0, "dflash_block_not_positive")
        flags.refuse_if(tokens not in {None, block}, "dflash_block_and_tokens")
        tokens = block
    if tokens is None:
        tokens = _DFLASH_BLOCK
        flags.warnings.append(
            f"speculative_num_draft_tokens is not set; defaulting to {_DFLASH_BLOCK} for DFLASH."
        )
    flags.set(speculative_num_draft_tokens=tokens)
    window = flags["speculative_draft_window_size"]
    flags.refuse_if(window is not None and window < tokens, "dflash_window")
    flags.limit_requests()
