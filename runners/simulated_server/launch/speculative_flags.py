"""Flags of speculative decoding: SGLang's rewrites and refusals."""

from __future__ import annotations

from typing import Any

from runners.simulated_server.engine.adaptive import candidate_steps

_LIMIT = 48
"""Running requests of a speculating server where nothing is said (0.5.23)."""


class Resolving:
    """Flags on their way.

    Attributes:
        values: By destination; rewritten in place.
        algorithm: In SGLang's spelling.
        backend: The attention backend.
        cpu: Whether the device is a CPU.
        warnings: What SGLang logs, in order.
    """

    def __init__(
        self, values: dict[str, Any], algorithm: str, backend: str, *, cpu: bool = False
    ) -> None:
        self.values = values
        self.algorithm = algorithm
        self.backend = backend
        self.cpu = cpu
        self.warnings: list[str] = []

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a flag's value
        return self.values.get(name)

    def set(self, **values: object) -> None:
        """Rewrites flags."""
        self.values.update(values)

    @property
    def attention_dp(self) -> bool:
        """Whether attention is data-parallel."""
        return bool(self["enable_dp_attention"]) and int(self["dp_size"] or 1) > 1

    @property
    def page_size(self) -> int:
        """Tokens of a page."""
        return int(self["page_size"] or 1)

    def limit_requests(self) -> None:
        """48 running requests where nothing is said."""
        if self["max_running_requests"] is None:
            self.set(max_running_requests=_LIMIT)
            self.warnings.append(
                "Max running requests is reset to 48 for speculative decoding. You can override "
                "this by explicitly setting --max-running-requests."
            )

    def no_overlap_on_cpu(self) -> None:
        """The overlap schedule needs a GPU."""
        if self.cpu and not self["disable_overlap_schedule"]:
            self.set(disable_overlap_schedule=True)
            self.warnings.append(
                "Overlap schedule is not implemented for speculative decoding on CPU."
            )


class FlagsRefusedError(Exception):
    """SGLang would end here with a traceback and exit status 1.

    Attributes:
        last_line: The traceback's last line.
        trace: Name of the traceback, see `data/crashes`.
        frame: A frame at its end, as `(file, line, function, source)`, where the recorded ones
            end before it.
    """

    def __init__(
        self, last_line: str, trace: str, frame: tuple[str, int, str, str] | None = None
    ) -> None:
        super().__init__(last_line)
        self.last_line = last_line
        self.trace = trace
        self.frame = frame


def in_hook(
    last_line: str,
    line: int = 242,
    function: str = "handle_speculative_decoding",
    source: str = "raise ValueError(",
) -> FlagsRefusedError:
    """A refusal at a line of `speculative_hook.py` of 0.5.23."""
    frame = ("srt/arg_groups/speculative_hook.py", line, function, source)
    return FlagsRefusedError(last_line, "hook", frame)


_PAGE_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
_NONE_TO_INT = "TypeError: '>' not supported between instances of 'NoneType' and 'int'"
_NGRAM_BREADTH, _NGRAM_TOKENS = 10, 12
_BLOCK = 16


def resolve_algorithm(flags: Resolving) -> None:
    """Rewrites the flags of one algorithm.

    Raises:
        FlagsRefusedError: SGLang refuses them.
    """
    check_block_verification(flags)
    check_draft_window(flags)
    if flags["speculative_adaptive"]:
        _adaptive(flags)
    if flags.algorithm == "NGRAM":
        _ngram(flags)
    elif flags.algorithm == "DFLASH":
        _dflash(flags)
    else:
        _eagle_family(flags)


def _eagle_family(flags: Resolving) -> None:
    function = "_handle_eagle_family"
    if flags.algorithm == "STANDALONE" and flags.attention_dp:
        raise in_hook(
            "ValueError: Currently standalone speculative decoding does not support dp attention.",
            1082,
            function,
        )
    flags.limit_requests()
    flags.no_overlap_on_cpu()
    if flags["disable_overlap_schedule"]:
        flags.warnings.append(
            "Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone speculative "
            "decoding."
        )
    if flags["enable_mixed_chunk"] and flags.algorithm == "STANDALONE":
        flags.set(enable_mixed_chunk=False)
        flags.warnings.append(
            "Mixed chunked prefill is disabled: STANDALONE speculative decoding does not support "
            "it."
        )
    _shape(flags)
    if flags["speculative_num_draft_tokens"] is None:
        # Passes every check; the launcher trips over it (managers/utils.py, line 497).
        raise FlagsRefusedError(_NONE_TO_INT, "draft_tokens_missing")


def _shape(flags: Resolving) -> None:
    function = "_handle_eagle_family"
    if flags["speculative_num_steps"] is None:
        if not (
            flags["speculative_eagle_topk"] is None
            and flags["speculative_num_draft_tokens"] is None
        ):
            raise FlagsRefusedError("AssertionError", "steps_missing")
        steps, topk, tokens = _defaults(flags)
        flags.set(
            speculative_num_steps=steps,
            speculative_eagle_topk=topk,
            speculative_num_draft_tokens=tokens,
        )
    steps, topk = flags["speculative_num_steps"], flags["speculative_eagle_topk"]
    decoding = (
        flags["prefill_attention_backend"] or flags.backend,
        flags["decode_attention_backend"] or flags.backend,
    )
    if "trtllm_mha" in decoding:
        if topk is None:
            raise in_hook(_NONE_TO_INT, 1177, function, "if cfg.speculative_eagle_topk > 1:")
        if topk > 1:
            raise in_hook(
                "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.",
                1178,
                function,
            )
    check_rejection_sampling(flags)
    if topk == 1 and flags["speculative_num_draft_tokens"] != steps + 1:
        flags.warnings.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1"
        )
        flags.set(speculative_num_draft_tokens=steps + 1)
    if topk is None:
        raise FlagsRefusedError(_NONE_TO_INT, "topk_missing")
    if topk > 1 and flags.page_size > 1 and flags.backend not in _PAGE_TREE_BACKENDS:
        raise FlagsRefusedError(
            "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on "
            f"{_PAGE_TREE_BACKENDS}; got attention_backend={flags.backend!r}. Use page_size == 1 "
            "or one of those backends.",
            "page_tree",
        )


def _defaults(flags: Resolving) -> tuple[int, int, int]:
    """SGLang's own table, by the model's architecture; here by what its name says."""
    name = str(flags["model_path"] or "").lower()
    wide = flags.algorithm != "STANDALONE" and ("llama" in name or "grok" in name)
    return (5, 4, 8) if wide else (3, 1, 4)


def _ngram(flags: Resolving) -> None:
    function = "_handle_ngram"
    flags.no_overlap_on_cpu()
    flags.limit_requests()
    breadth = int(flags["speculative_ngram_max_bfs_breadth"] or _NGRAM_BREADTH)
    flags.set(enable_mixed_chunk=False, speculative_eagle_topk=breadth)
    if flags["speculative_num_draft_tokens"] is None:
        flags.set(speculative_num_draft_tokens=_NGRAM_TOKENS)
        flags.warnings.append(
            "speculative_num_draft_tokens is set to 12 by default for ngram speculative decoding. "
            "You can override this by explicitly setting --speculative-num-draft-tokens."
        )
    tokens = int(flags["speculative_num_draft_tokens"])
    if flags["speculative_num_steps"] is None:
        flags.set(speculative_num_steps=tokens // breadth)
    flags.warnings.append(
        "The mixed chunked prefill are disabled because of using ngram speculative decoding."
    )
    if breadth > 1 and flags.page_size > 1 and flags.backend != "flashinfer":
        raise in_hook(
            f"ValueError: speculative_eagle_topk({breadth}) > 1 with page_size({flags.page_size}) "
            "> 1 is unstable and produces incorrect results for paged attention backends. This "
            "combination is only supported for the 'flashinfer' backend.",
            1361,
            function,
        )
    if flags.attention_dp:
        raise in_hook(
            "ValueError: Currently ngram speculative decoding does not support dp attention.",
            1369,
            function,
        )


def _dflash(flags: Resolving) -> None:
    function = "_handle_dflash"
    if flags.cpu:
        raise in_hook(
            "ValueError: DFLASH speculative decoding is not supported by CpuSRTPlatform on device "
            "'cpu'.",
            298,
            function,
        )
    if flags.attention_dp and not flags["enable_dp_lm_head"]:
        message = "DFLASH with dp attention requires --enable-dp-lm-head."
        source = f'raise ValueError("{message}")'
        raise in_hook(f"ValueError: {message}", 308, function, source)
    if int(flags["pp_size"] or 1) != 1:
        raise in_hook(
            "ValueError: Currently DFLASH speculative decoding only supports pp_size == 1.",
            320,
            function,
        )
    if flags["speculative_draft_model_path"] is None:
        raise in_hook(
            "ValueError: DFLASH speculative decoding requires setting "
            "--speculative-draft-model-path.",
            325,
            function,
        )
    for name in ("speculative_num_steps", "speculative_eagle_topk"):
        if flags[name] not in {None, 1}:
            flags.warnings.append(
                f"DFLASH only supports {name} == 1; overriding {name}={flags[name]} to 1."
            )
        flags.set(**{name: 1})
    _block(flags, function)
    flags.limit_requests()


def _block(flags: Resolving, function: str) -> None:
    block, tokens = flags["speculative_dflash_block_size"], flags["speculative_num_draft_tokens"]
    if block is not None:
        if block <= 0:
            raise in_hook(
                "ValueError: DFLASH requires --speculative-dflash-block-size to be positive, got "
                f"{block}.",
                370,
                function,
            )
        if tokens not in {None, block}:
            raise in_hook(
                "ValueError: Both --speculative-num-draft-tokens and "
                "--speculative-dflash-block-size are set but they differ. For DFLASH they must "
                f"match. speculative_num_draft_tokens={tokens}, "
                f"speculative_dflash_block_size={block}.",
                377,
                function,
            )
        tokens = block
    if tokens is None:
        tokens = _BLOCK
        flags.warnings.append(
            f"speculative_num_draft_tokens is not set; defaulting to {_BLOCK} for DFLASH."
        )
    flags.set(speculative_num_draft_tokens=tokens)
    window = flags["speculative_draft_window_size"]
    if window is not None and window < tokens:
        raise in_hook(
            "ValueError: --speculative-draft-window-size must be >= --speculative-num-draft-tokens "
            f"(block_size). window_size={window}, block_size={tokens}.",
            430,
            function,
        )


def _adaptive(flags: Resolving) -> None:
    reason = _not_adaptive(flags)
    if reason is not None:
        flags.warnings.append(
            f"speculative_adaptive disabled: {reason}. Falling back to static speculative params."
        )
        flags.set(speculative_adaptive=False)
        return
    candidates = _candidates(flags["speculative_adaptive_config"])
    if flags["speculative_eagle_topk"] is None:
        flags.set(speculative_eagle_topk=1)
    if flags["speculative_num_steps"] is None:
        flags.set(speculative_num_steps=candidates[len(candidates) // 2])
    steps = flags["speculative_num_steps"]
    if steps not in candidates:
        raise in_hook(
            f"ValueError: --speculative-num-steps={steps} is not in the adaptive config "
            f"candidate_steps {candidates}. Pass one of those values.",
            1417,
            "_init_adaptive_speculative_params",
        )
    flags.set(speculative_num_draft_tokens=steps + 1)


def _not_adaptive(flags: Resolving) -> str | None:
    if flags.algorithm not in {"EAGLE", "EAGLE3"}:
        return f"speculative_algorithm={flags.algorithm} (only EAGLE/EAGLE3 are supported)"
    topk = flags["speculative_eagle_topk"]
    if topk not in {None, 1}:
        return f"speculative_eagle_topk={topk} (only topk=1 is supported)"
    if flags.attention_dp:
        return (
            "attention DP is not supported (adaptive tier decisions are not synchronized across "
            "DP ranks)"
        )
    return None


def _candidates(config: str | None) -> list[int]:
    try:
        return candidate_steps(config)
    except OSError as error:
        raise in_hook(
            f"FileNotFoundError: [Errno {error.errno}] {error.strerror}: {config!r}"
        ) from error
    except ValueError as error:
        raise in_hook(f"ValueError: {error}") from error


_HEADS = frozenset({"EAGLE", "EAGLE3"})
_BLOCK_VERIFIED = _HEADS | {"DFLASH", "DSPARK"}


def check_block_verification(flags: Resolving) -> None:
    """`--speculative-use-block-verification`, before anything else.

    Raises:
        FlagsRefusedError: The algorithm or the device does not have it.
    """
    if not flags["speculative_use_block_verification"]:
        return
    if flags.algorithm not in _BLOCK_VERIFIED:
        raise in_hook(
            "ValueError: --speculative-use-block-verification only supports EAGLE / EAGLE3 / NEXTN "
            "/ DFLASH / DSPARK.",
            177,
        )
    if flags.cpu:
        raise in_hook(
            "ValueError: --speculative-use-block-verification only supports CUDA or ROCm.", 182
        )
    if flags.algorithm in _HEADS:
        flags.set(speculative_use_rejection_sampling=True)


def check_draft_window(flags: Resolving) -> None:
    """The draft's attention window and sink.

    Raises:
        FlagsRefusedError: Their sizes make no sense.
    """
    window, sink = flags["speculative_draft_window_size"], flags["speculative_draft_sink_size"]
    if window is not None and window <= 0:
        raise in_hook(
            f"ValueError: --speculative-draft-window-size must be positive, got {window}.", 206
        )
    if sink is not None and sink < 0:
        raise in_hook(
            f"ValueError: --speculative-draft-sink-size must be non-negative, got {sink}.", 226
        )
    if sink is not None and window is None:
        raise in_hook(
            "ValueError: --speculative-draft-sink-size requires --speculative-draft-window-size.",
            230,
        )


def check_rejection_sampling(flags: Resolving) -> None:
    """`--speculative-use-rejection-sampling`, of the EAGLE family.

    Raises:
        FlagsRefusedError: The rest of the flags does not go with it.
    """
    if not flags["speculative_use_rejection_sampling"]:
        return
    function = "_handle_eagle_family"
    if flags.algorithm not in _HEADS:
        raise in_hook(
            "NotImplementedError: --speculative-use-rejection-sampling is only supported for EAGLE "
            f"/ EAGLE3 / NEXTN, not speculative_algorithm={flags.algorithm}.",
            1216,
            function,
            "raise NotImplementedError(",
        )
    if flags["speculative_eagle_topk"] != 1:
        raise in_hook(
            "ValueError: --speculative-use-rejection-sampling requires --speculative-eagle-topk=1.",
            1222,
            function,
        )
    if flags["enable_deterministic_inference"] and flags.cpu:
        raise in_hook(
            "ValueError: Deterministic rejection sampling is currently supported only on "
            "CUDA-compatible devices because draft proposal sampling uses a Triton hash kernel.",
            1226,
            function,
        )
    thresholds = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
    if any(flags[name] not in {None, 1.0} for name in thresholds):
        raise in_hook(
            "ValueError: --speculative-use-rejection-sampling is incompatible with "
            "--speculative-accept-threshold-single / --speculative-accept-threshold-acc; rejection "
            "sampling ignores the accept thresholds.",
            1235,
            function,
        )
