"""What SGLang refuses of its flags for verification and for the draft's window.

Read in SGLang 0.5.23, `srt/arg_groups/speculative_hook.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runners.simulated_server.resolving import in_hook

if TYPE_CHECKING:
    from runners.simulated_server.resolving import Resolving

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
