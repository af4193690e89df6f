"""What failures of a server look like in its log.

To teach the tuner a new failure, add a rule to `RULES`; the first that matches wins, so causes
stand before their consequences. Texts are those of SGLang 0.5.9 to 0.5.23.
"""

from __future__ import annotations

import re

from runners.sglang.failures.model_rules import MODEL_RULES
from runners.sglang.failures.plugin_rules import PLUGIN_RULES
from runners.sglang.failures.rule import Rule, ignoring_case


def _in_speculation_flags(tail: str) -> bool:
    """Whether the flags of speculation were being looked at.

    That is `speculative_hook.py` since 0.5.17, and was a method of ServerArgs in 0.5.9.
    """
    return (
        "speculative_hook.py" in tail
        or "in _handle_speculative_decoding" in tail
        or "compute_num_reserved_tokens" in tail
        or "AdaptiveSpec" in tail
    )


RULES: tuple[Rule, ...] = (
    *PLUGIN_RULES,
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
    # The host, and what the study asks of it.
    Rule(
        "port_taken",
        "host",
        ignoring_case(
            r"address already in use|_port .*is used by a process already"
            r"|port .*is not available in \d+ seconds"
        ),
        "another process listens on a port of this launch",
    ),
    Rule(
        "lora_not_found",
        "study",
        ignoring_case(r"RuntimeError: Failed to load LoRA adapter .*"),
        "correct `lora-paths` under `server.flags`",
    ),
    Rule("disk_full", "host", ignoring_case(r"No space left on device"), "free some disk space"),
    Rule(
        "too_many_files",
        "host",
        ignoring_case(r".*Too many open files.*"),
        "the limit of open files is too low: raise it (ulimit -n 65536) for the tuner",
    ),
    Rule(
        "bad_address",
        "study",
        ignoring_case(
            r".*error while attempting to bind on address .*"
            r"(permission denied|cannot assign requested address).*"
            r"|OverflowError: .*port must be 0-65535.*"
        ),
        "the server cannot listen there: correct `host` and `port` under `server.flags`",
    ),
    Rule(
        "gpu_unusable",
        "host",
        ignoring_case(
            r"no CUDA-capable device|CUDA driver version is insufficient|GPU is lost|\bXid\b"
            r"|CUDA unknown error|No accelerator .* is available|Found no NVIDIA driver"
            r"|Torch not compiled with CUDA enabled|module 'torch\._C' has no attribute '_cuda_.*"
        ),
        "check the driver and the devices (nvidia-smi), and that the server's torch is built for "
        "them",
    ),
    Rule(
        "too_few_devices",
        "study",
        ignoring_case(r"CUDA error: invalid device ordinal.*|.*the total number of ranks \(.*"),
        "fewer devices than `tp-size` and the other parallel sizes need",
    ),
    *MODEL_RULES,
    Rule(
        "bad_flag_value",
        "study",
        re.compile(r"^(json\.decoder|orjson)\.JSONDecodeError: .*", re.MULTILINE),
        "`json-model-override-args` or `model-loader-extra-config` under `server.flags` is no JSON",
        "arguments",
        also=lambda tail: "model_override_args" in tail or "model_loader_extra_config" in tail,
    ),
    # Speculation.
    Rule(
        "tree_too_large",
        "configuration",
        ignoring_case(r"selected index k out of range"),
        "more draft tokens than the draft tree has nodes",
    ),
    Rule(
        "tree_too_narrow",
        "configuration",
        ignoring_case(
            r"RuntimeError: The expanded size of the tensor .* must match the existing size .*"
        ),
        "fewer draft tokens than num_steps + 1: a path through the draft tree does not fit",
        also=lambda tail: "_compact_accept_to_front" in tail,
    ),
    Rule(
        "unsupported_backend",
        "configuration",
        ignoring_case(
            r"ValueError: .*is not supported in \w+ attention backend.*"
            r"|ValueError: .*backend only supports topk = 1.*"
            r"|ValueError: .*topk > 1 with page_size > 1.*"
            r"|AssertionError: .*Backend requires SM.*"
        ),
    ),
    Rule(
        "invalid_speculation",
        "configuration",
        ignoring_case(r"ValueError: Unknown speculative algorithm.*"),
    ),
    Rule(
        "invalid_speculation",
        "configuration",
        re.compile(r"^(AssertionError|TypeError|ValueError)\b.*", re.MULTILINE),
        "SGLang rejects this combination of speculation flags",
        "arguments",
        also=_in_speculation_flags,
    ),
    Rule(
        "invalid_speculation",
        "configuration",
        re.compile(r".*shared logits buffer holds .*"),
        "adaptive speculation must start with the deepest of its candidate steps (0.5.17)",
        "cuda_graph",
    ),
    # NCCL. Before memory: a capture that fails on NCCL ends with hints about memory (0.5.17).
    Rule(
        "nccl_out_of_memory",
        "configuration",
        ignoring_case(r"Failed to CUDA (c|m)alloc(Async)? .*"),
        "NCCL's buffers did not fit beside the KV pool",
    ),
    Rule(
        "nccl_invalid_usage",
        "configuration",
        ignoring_case(r"NCCL error: invalid (usage|argument).*"),
        "NCCL refuses this setting; with NCCL_DEBUG=WARN the log names the cause",
    ),
    Rule(
        "nccl_system_error",
        "host",
        ignoring_case(
            r"NCCL error: (unhandled (system|cuda) error|remote process exited|internal error).*"
            r"|ncclSystemError.*|ncclRemoteError.*|ncclUnhandledCudaError.*"
        ),
        "NCCL_DEBUG=WARN makes the log name the cause",
    ),
    Rule("nccl_error", "configuration", ignoring_case(r"NCCL error: .*|ncclInvalidUsage.*")),
    # Memory: two opposite failures.
    Rule(
        "kv_pool_too_small",
        "configuration",
        # The second text names the least share that could do.
        ignoring_case(
            r"Not enough memory\. Please try to increase --mem-fraction-static.*"
            r"|Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static.*"
        ),
        phase="kv_cache",
    ),
    Rule(
        "kv_pool_too_small",
        "configuration",
        # The warm-up's own prompt, of 15 tokens.
        ignoring_case(r"AssertionError: .*Input length .* exceeds the maximum allowed length.*"),
        "the KV pool holds fewer tokens than one request: raise max-total-tokens or "
        "mem-fraction-static",
        "kv_cache",
    ),
    Rule(
        "cuda_oom",
        "configuration",
        ignoring_case(r".*CUDA out of memory.*|.*OutOfMemoryError.*|CUDA error: out of memory.*"),
        "lower mem-fraction-static, or capture graphs for smaller batches",
    ),
    Rule(
        "host_out_of_memory",
        "host",
        ignoring_case(
            r"DefaultCPUAllocator: can't allocate memory.*|^MemoryError.*|.*std::bad_alloc.*"
            r"|.*Cannot allocate memory.*|.*can't start new thread.*"
        ),
        "the host's memory is used up",
    ),
    # Hangs that SGLang noticed itself.
    Rule("hang_watchdog", "configuration", ignoring_case(r".*watchdog timeout.*")),
    # What a GPU reports, often at the wrong line: the family of the message counts.
    Rule("nan_logits", "configuration", ignoring_case(r"Detected errors during sampling.*NaN.*")),
    Rule(
        "cuda_error",
        "configuration",
        ignoring_case(
            r".*(an illegal memory access|illegal instruction|device-side assert"
            r"|cudaErrorIllegalAddress|misaligned address).*"
        ),
    ),
    Rule(
        "missing_module",
        "configuration",
        re.compile(
            r"^(ImportError|ModuleNotFoundError): .*"
            r"|^Exception: \S+ with minimum required version .*is not installed.*",
            re.MULTILINE,
        ),
        "SGLang's installation lacks what this configuration needs",
    ),
    Rule(
        "cuda_graph_failed",
        "configuration",
        ignoring_case(r"Capture .*graph failed: .*"),
        phase="cuda_graph",
    ),
    # Processes that were killed from outside (-15: by a service manager). -9 is also how SGLang
    # ends its own group, so the exit code alone says nothing; a scheduler reported as killed does.
    Rule(
        "scheduler_killed",
        "host",
        ignoring_case(
            r"Subprocess scheduler_\d+ .*crashed with exit code -(9|15)\b.*"
            r"|scheduler died during initialization \(exit code: -(9|15)\).*"  # since 0.5.17
            r"|scheduler is dead\..*\n.*Exit code: -(9|15)\b.*"  # 0.5.9
        ),
        "something outside killed it; the kernel's out-of-memory killer is the usual one "
        "(dmesg -T | grep -i oom)",
    ),
)
