"""What failures of a server look like in its log.

To teach the tuner a new failure, add a rule to `RULES`; the first that matches wins, so causes
stand before their consequences. Texts are those of SGLang 0.5.9 to 0.5.23.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.records import Fault


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of failure.

    Attributes:
        kind: Its stable code.
        fault: Who is to blame.
        pattern: Found in the log; its line is the message.
        hint: What to do, or what the line does not say.
        phase: Where it happened, whatever the log's phases say.
        also: Further condition on the whole tail.
    """

    kind: str
    fault: Fault
    pattern: re.Pattern[str]
    hint: str = ""
    phase: str | None = None
    also: Callable[[str], bool] = lambda _: True


def _re(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def _in_speculative_hook(tail: str) -> bool:
    return "speculative_hook.py" in tail


def _drafting(tail: str) -> bool:
    return bool(re.search(r"/speculative/|eagle|draft", tail, re.IGNORECASE))


_MODEL_MISSING = _re(
    r"OSError: .*(connect to 'https?://|is not a local folder|does not appear to have a file)"
    r"|LocalEntryNotFoundError:|RepositoryNotFoundError:|HFValidationError:|GatedRepoError:"
    r"|FileNotFoundError: .*(config|safetensors|model)"
)

RULES: tuple[Rule, ...] = (
    # The command line (exit code 2).
    Rule(
        "unknown_flag",
        "study",
        re.compile(r"error: unrecognized arguments: .*"),
        "this version of SGLang has no such flag",
        "arguments",
    ),
    Rule(
        "bad_flag_value",
        "study",
        re.compile(r"error: argument --\S+.*|error: ambiguous option: .*"),
        phase="arguments",
    ),
    Rule(
        "missing_flag",
        "study",
        re.compile(r"error: the following arguments are required: .*"),
        phase="arguments",
    ),
    # The host.
    Rule(
        "port_taken",
        "host",
        _re(
            r"address already in use|_port .*is used by a process already"
            r"|port .*is not available in \d+ seconds"
        ),
        "another process listens on a port of this launch",
    ),
    Rule("disk_full", "host", _re(r"No space left on device"), "free some disk space"),
    Rule(
        "gpu_unusable",
        "host",
        _re(
            r"no CUDA-capable device|CUDA driver version is insufficient|GPU is lost|\bXid\b"
            r"|CUDA unknown error|No accelerator .* is available|Found no NVIDIA driver"
        ),
        "check the driver and the devices (nvidia-smi)",
    ),
    # Models and drafts.
    Rule(
        "draft_not_found",
        "study",
        _MODEL_MISSING,
        "the draft model was not found: check `model.draft`, HF_HUB_OFFLINE and the cache",
        also=_in_speculative_hook,
    ),
    Rule(
        "model_not_found",
        "study",
        _MODEL_MISSING,
        "the model was not found: check `model.path`, HF_HUB_OFFLINE and the cache",
    ),
    Rule(
        "trust_remote_code",
        "study",
        _re(r".*(pass the argument|set the option) `?trust_remote_code=True.*"),
        "set `trust-remote-code: true` under `server.flags` if you trust the model's code",
    ),
    Rule(
        "context_too_long", "study", _re(r"ValueError: .*greater than the derived context_length")
    ),
    Rule(
        "draft_missing",
        "study",
        _re(r"has no attribute 'hot_token_id'"),
        "this algorithm needs a draft of its own: set `model.draft`",
    ),
    Rule(
        "draft_mismatch",
        "study",
        _re(
            r"RuntimeError: mat1 and mat2 shapes cannot be multiplied.*"
            r"|size mismatch for .*|KeyError: 'embed_tokens\.weight'"
        ),
        "the draft does not fit the target, so no setting of it can run",
        also=_drafting,
    ),
    # Speculation.
    Rule(
        "tree_too_large",
        "configuration",
        _re(r"selected index k out of range"),
        "more draft tokens than the draft tree has nodes",
    ),
    Rule(
        "tree_too_narrow",
        "configuration",
        _re(r"RuntimeError: The expanded size of the tensor .* must match the existing size .*"),
        "fewer draft tokens than num_steps + 1: a path through the draft tree does not fit",
        also=lambda tail: "_compact_accept_to_front" in tail,
    ),
    Rule(
        "unsupported_backend",
        "configuration",
        _re(
            r"ValueError: .*is not supported in \w+ attention backend.*"
            r"|ValueError: .*backend only supports topk = 1.*"
            r"|ValueError: .*topk > 1 with page_size > 1.*"
        ),
    ),
    Rule(
        "invalid_speculation",
        "configuration",
        _re(r"ValueError: Unknown speculative algorithm.*"),
    ),
    Rule(
        "invalid_speculation",
        "configuration",
        re.compile(r"^(AssertionError|TypeError|ValueError)\b.*", re.MULTILINE),
        "SGLang rejects this combination of speculation flags",
        "arguments",
        also=lambda tail: (
            _in_speculative_hook(tail)
            or "compute_num_reserved_tokens" in tail
            or "AdaptiveSpec" in tail
        ),
    ),
    # NCCL. Before memory: a capture that fails on NCCL ends with hints about memory (0.5.17).
    Rule(
        "nccl_out_of_memory",
        "configuration",
        _re(r"Failed to CUDA (c|m)alloc(Async)? .*"),
        "NCCL's buffers did not fit beside the KV pool",
    ),
    Rule(
        "nccl_invalid_usage",
        "configuration",
        _re(r"NCCL error: invalid (usage|argument).*"),
        "NCCL refuses this setting; with NCCL_DEBUG=WARN the log names the cause",
    ),
    Rule(
        "nccl_system_error",
        "host",
        _re(
            r"NCCL error: (unhandled (system|cuda) error|remote process exited|internal error).*"
            r"|ncclSystemError.*|ncclRemoteError.*|ncclUnhandledCudaError.*"
        ),
        "NCCL_DEBUG=WARN makes the log name the cause",
    ),
    Rule("nccl_error", "configuration", _re(r"NCCL error: .*|ncclInvalidUsage.*")),
    # Memory: two opposite failures.
    Rule(
        "kv_pool_too_small",
        "configuration",
        # The second text names the least share that could do.
        _re(
            r"Not enough memory\. Please try to increase --mem-fraction-static.*"
            r"|Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static.*"
        ),
        phase="kv_cache",
    ),
    Rule(
        "cuda_oom",
        "configuration",
        _re(r".*CUDA out of memory.*|.*OutOfMemoryError.*|CUDA error: out of memory.*"),
        "lower mem-fraction-static, or capture graphs for smaller batches",
    ),
    Rule(
        "host_out_of_memory",
        "host",
        _re(r"DefaultCPUAllocator: can't allocate memory.*|^MemoryError.*"),
        "the host's memory is used up",
    ),
    # Hangs that SGLang noticed itself.
    Rule("hang_watchdog", "configuration", _re(r".*watchdog timeout.*")),
    # What a GPU reports, often at the wrong line: the family of the message counts.
    Rule("nan_logits", "configuration", _re(r"Detected errors during sampling.*NaN.*")),
    Rule(
        "cuda_error",
        "configuration",
        _re(
            r".*(an illegal memory access|illegal instruction|device-side assert"
            r"|cudaErrorIllegalAddress|misaligned address).*"
        ),
    ),
    Rule(
        "missing_module",
        "configuration",
        re.compile(r"^(ImportError|ModuleNotFoundError): .*", re.MULTILINE),
        "SGLang's installation lacks what this configuration needs",
    ),
    Rule(
        "cuda_graph_failed",
        "configuration",
        _re(r"Capture .*graph failed: .*"),
        phase="cuda_graph",
    ),
    # Processes that were killed from outside (-15: by a service manager). -9 is also how SGLang
    # ends its own group, so the exit code alone says nothing; a scheduler reported as killed does.
    Rule(
        "scheduler_killed",
        "host",
        _re(
            r"Subprocess scheduler_\d+ .*crashed with exit code -(9|15)\b.*"
            r"|scheduler died during initialization \(exit code: -(9|15)\).*"
        ),
        "something outside killed it; the kernel's out-of-memory killer is the usual one "
        "(dmesg -T | grep -i oom)",
    ),
)
