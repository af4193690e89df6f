"""Kinds of failures that a server's log shows, with advice.

To add a kind, add a rule to `RULES` and a row to the table of `docs/failures.md`. The first
matching rule wins, so causes stand before their consequences. Texts are those of SGLang 0.5.9 to
0.5.23, PyTorch, `transformers` and `safetensors`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.plugin.package import prepared_settings
from runners.plugin.protocol import NAME

if TYPE_CHECKING:
    from results.records import Failure, Fault, LaunchIntent


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of failure.

    Patterns ignore case, and `^` matches at the start of every line.

    Attributes:
        kind: Stable code of the failure.
        fault: `configuration`, `study` or `host`; decides what the sweep does (`docs/failures.md`).
        pattern: Text in the log; its line becomes the message.
        advice: Remedy, or a fact that the line lacks; follows the line in the message.
        phase: Phase of the failure. [default: the phase that the log reached]
        where: Pattern that the log must also contain, for example a function of the traceback.
    """

    kind: str
    fault: Fault
    pattern: str
    advice: str = ""
    phase: str | None = None
    where: str = ""

    def search(self, tail: str) -> re.Match[str] | None:
        """Match of the pattern in the end of a log; `None` if the rule does not apply."""
        flags = re.IGNORECASE | re.MULTILINE
        found = re.search(self.pattern, tail, flags)
        return found if found and re.search(self.where, tail, flags) else None


_PLUGIN_REFUSED = rf"{NAME}: REFUSED (?P<capability>\w+): .*"
_GPU_MEMORY = r".*CUDA out of memory.*|.*OutOfMemoryError.*|CUDA error: out of memory.*"
_MISSING_FILES = (
    r"OSError: .*(connect to 'https?://|is not a local folder|does not appear to have a file)"
    r"|LocalEntryNotFoundError:|RepositoryNotFoundError:|HFValidationError:|GatedRepoError:"
    r"|FileNotFoundError: .*(config|safetensors|model)"
)
_BAD_WEIGHTS = (
    r".*SafetensorError: .*|RuntimeError: Cannot find any model weights with.*"
    r"|.*UnpicklingError: .*|RuntimeError: PytorchStreamReader failed.*"
)
_OTHER_SHAPES = (
    r"RuntimeError: The size of tensor a .* must match the size of tensor b .*"
    r"|AssertionError: Attempted to load weight .* into parameter .*"
    r"|AssertionError: .*org_vocab_size=.*loaded_weight\.shape.*"
)
# 0.5.17 and 0.5.23 read the draft's configuration in the hook, 0.5.9 in the draft worker.
_IN_DRAFT = (
    r'speculative_hook\.py|File "[^"]*/speculative/[^"]*", line \d+, in (__init__|_?init\w*)'
)
# The hook exists since 0.5.17; 0.5.9 has a method of ServerArgs.
_IN_SPECULATION_FLAGS = (
    r"speculative_hook\.py|in _handle_speculative_decoding|compute_num_reserved_tokens|AdaptiveSpec"
)
_NOT_FOUND = "was not found; check `model.{}`, HF_HUB_OFFLINE and the cache"
_DAMAGED = "the files of {} are incomplete or damaged; download them again"

RULES: tuple[Rule, ...] = (
    Rule("plugin_refused", "configuration", _PLUGIN_REFUSED),
    # Every prepared setting has its own attention backends and graphs (0.5.17, 0.5.23).
    Rule(
        "hot_switch_memory",
        "configuration",
        _GPU_MEMORY,
        "the server was prepared for several settings; one launch per setting needs less memory",
        "cuda_graph",
        where=rf"{NAME}/hot_switch\.py",
    ),
    # The command line (exit code 2).
    Rule(
        "unknown_flag",
        "study",
        r"error: unrecognized arguments: .*",
        "this version of SGLang does not have this flag",
        "arguments",
    ),
    Rule(
        "bad_flag_value",
        "study",
        r"error: argument --\S+.*|error: ambiguous option: .*",
        phase="arguments",
    ),
    Rule(
        "missing_flag",
        "study",
        r"error: the following arguments are required: .*",
        phase="arguments",
    ),
    # The host, and the study's demands on the host.
    Rule(
        "port_taken",
        "host",
        r"address already in use|_port .*is used by a process already"
        r"|port .*is not available in \d+ seconds",
        "another process listens on a port of this launch",
    ),
    Rule(
        "lora_not_found",
        "study",
        r"RuntimeError: Failed to load LoRA adapter .*",
        "correct `lora-paths` under `server.flags`",
    ),
    Rule("disk_full", "host", r"No space left on device", "free some disk space"),
    Rule(
        "too_many_files",
        "host",
        r".*Too many open files.*",
        "the limit of open files is too low; raise it for the tuner (ulimit -n 65536)",
    ),
    Rule(
        "bad_address",
        "study",
        r".*error while attempting to bind on address .*"
        r"(permission denied|cannot assign requested address).*"
        r"|OverflowError: .*port must be 0-65535.*",
        "the server cannot listen there; correct `host` and `port` under `server.flags`",
    ),
    Rule(
        "gpu_unusable",
        "host",
        r"no CUDA-capable device|CUDA driver version is insufficient|GPU is lost|\bXid\b"
        r"|CUDA unknown error|No accelerator .* is available|Found no NVIDIA driver"
        r"|Torch not compiled with CUDA enabled|module 'torch\._C' has no attribute '_cuda_.*",
        "check the driver and the GPUs (nvidia-smi), and that the server's torch supports them",
    ),
    Rule(
        "too_few_devices",
        "study",
        r"CUDA error: invalid device ordinal.*|.*the total number of ranks \(.*",
        "the machine has fewer devices than `tp-size` and the other parallel sizes need",
        # Another rank may fail before the first one logs this phase.
        "distributed",
    ),
    # Files of models, drafts and tokenizers.
    Rule(
        "draft_not_found",
        "study",
        _MISSING_FILES,
        f"the draft model {_NOT_FOUND.format('draft')}",
        where=_IN_DRAFT,
    ),
    Rule("model_not_found", "study", _MISSING_FILES, f"the model {_NOT_FOUND.format('path')}"),
    Rule(
        "model_unreadable",
        "study",
        r"PermissionError: .*(config|safetensors|model|tokenizer).*",
        "the server's user may not read the model's files; change their owner or mode",
    ),
    Rule("bad_weights", "study", _BAD_WEIGHTS, _DAMAGED.format("the draft"), where=_IN_DRAFT),
    Rule("bad_weights", "study", _BAD_WEIGHTS, _DAMAGED.format("the model")),
    Rule(
        "bad_model_config",
        "study",
        r"OSError: .*the config file at .* is not a valid JSON file.*",
        _DAMAGED.format("the model"),
    ),
    # The launcher reads tokenizer and template, in whatever phase the scheduler is by then.
    Rule(
        "bad_tokenizer",
        "study",
        r"^ValueError: Couldn't instantiate the backend tokenizer.*"
        r"|^OSError: Can't load tokenizer for.*",
        "the model's folder has no tokenizer; add its files, or set `tokenizer-path` under "
        "`server.flags`",
        "arguments",
    ),
    Rule(
        "bad_chat_template",
        "study",
        r"^RuntimeError: (Chat|Completion) template .*",
        "correct `chat-template` under `server.flags`",
        "arguments",
    ),
    Rule(
        "trust_remote_code",
        "study",
        r".*(pass the argument|set the option) `?trust_remote_code=True.*",
        "set `trust-remote-code: true` under `server.flags` if you trust the model's code",
    ),
    Rule(
        "unsupported_model",
        "study",
        r"^ValueError: (Unrecognized model in|The checkpoint you are trying to load has model type"
        r"|Cannot find model module|Model architectures .* are not supported"
        r"|No model architectures|.* has no SGLang implementation).*",
        "this version of SGLang cannot serve this model; see `architectures` and `model_type` in "
        "its config.json",
    ),
    Rule(
        "unsupported_quantization",
        "configuration",
        r"ValueError: (Cannot find the config file for \w+"
        r"|.* is not supported for quantization method.*"
        r"|The quantization method \S+ is not supported.*|Quantization method specified .*"
        r"|\S+ quantization is currently not supported.*)",
        "`quantization` or `dtype` does not fit the model's weights or this device",
    ),
    Rule("context_too_long", "study", r"ValueError: .*greater than the derived context_length"),
    Rule(
        "draft_missing",
        "study",
        r"has no attribute 'hot_token_id'",
        "this algorithm needs a draft made for it (an EAGLE-3 head); set `model.draft`",
    ),
    Rule(
        "draft_mismatch",
        "study",
        r"RuntimeError: mat1 and mat2 shapes cannot be multiplied.*|size mismatch for .*"
        r"|KeyError: 'embed_tokens\.weight'",
        "the draft does not fit the target; use a draft made for this model",
        where=r"/speculative/|eagle|draft",
    ),
    Rule(
        "draft_mismatch",
        "study",
        _OTHER_SHAPES,
        "the draft's weights do not have the shapes of its config.json",
        where=_IN_DRAFT,
    ),
    Rule(
        "bad_weights",
        "study",
        _OTHER_SHAPES,
        "the weights do not have the shapes of the model's config.json",
        where="load_weights",
    ),
    Rule(
        "bad_flag_value",
        "study",
        r"^(json\.decoder|orjson)\.JSONDecodeError: .*",
        "`json-model-override-args` or `model-loader-extra-config` under `server.flags` is not "
        "valid JSON",
        "arguments",
        where="model_override_args|model_loader_extra_config",
    ),
    # Speculation.
    Rule(
        "tree_too_large",
        "configuration",
        r"selected index k out of range",
        "more draft tokens than the draft tree has nodes",
    ),
    Rule(
        "tree_too_narrow",
        "configuration",
        r"RuntimeError: The expanded size of the tensor .* must match the existing size .*",
        "fewer draft tokens than num_steps + 1: a path through the draft tree does not fit",
        where="_compact_accept_to_front",
    ),
    Rule(
        "unsupported_backend",
        "configuration",
        r"ValueError: .*is not supported in \w+ attention backend.*"
        r"|ValueError: .*backend only supports topk = 1.*"
        r"|ValueError: .*topk > 1 with page_size > 1.*|AssertionError: .*Backend requires SM.*",
    ),
    Rule("invalid_speculation", "configuration", r"ValueError: Unknown speculative algorithm.*"),
    Rule(
        "invalid_speculation",
        "configuration",
        r"^(AssertionError|TypeError|ValueError)\b.*",
        "SGLang refuses this combination of speculation flags",
        "arguments",
        where=_IN_SPECULATION_FLAGS,
    ),
    Rule(
        "invalid_speculation",
        "configuration",
        r".*shared logits buffer holds .*",
        "adaptive speculation must start with the deepest of its candidate steps (0.5.17)",
        "cuda_graph",
    ),
    # NCCL. Before memory: a capture that fails in NCCL ends with hints about memory (0.5.17).
    Rule(
        "nccl_out_of_memory",
        "configuration",
        r"Failed to CUDA (c|m)alloc(Async)? .*",
        "NCCL's buffers did not fit beside the KV pool",
    ),
    Rule(
        "nccl_invalid_usage",
        "configuration",
        r"NCCL error: invalid (usage|argument).*",
        "NCCL refuses this setting; with NCCL_DEBUG=WARN the log names the cause",
    ),
    Rule(
        "nccl_system_error",
        "host",
        r"NCCL error: (unhandled (system|cuda) error|remote process exited|internal error).*"
        r"|ncclSystemError.*|ncclRemoteError.*|ncclUnhandledCudaError.*",
        "with NCCL_DEBUG=WARN the log names the cause",
    ),
    Rule("nccl_error", "configuration", r"NCCL error: .*|ncclInvalidUsage.*"),
    # Memory: two opposite failures.
    Rule(
        "kv_pool_too_small",
        "configuration",
        # The second text states the smallest sufficient share.
        r"Not enough memory\. Please try to increase --mem-fraction-static.*"
        r"|Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static.*",
        phase="kv_cache",
    ),
    Rule(
        "kv_pool_too_small",
        "configuration",
        # The prompt of SGLang's own warm-up has 15 tokens.
        r"AssertionError: .*Input length .* exceeds the maximum allowed length.*",
        "the KV pool holds fewer tokens than one request; raise max-total-tokens or "
        "mem-fraction-static",
        "kv_cache",
    ),
    Rule(
        "cuda_oom",
        "configuration",
        _GPU_MEMORY,
        "lower mem-fraction-static, or capture graphs for smaller batches",
    ),
    Rule(
        "host_out_of_memory",
        "host",
        r"DefaultCPUAllocator: can't allocate memory.*|^MemoryError.*|.*std::bad_alloc.*"
        r"|.*Cannot allocate memory.*|.*can't start new thread.*",
        "the host has no memory left",
    ),
    # Hangs that SGLang detects.
    Rule("hang_watchdog", "configuration", r".*watchdog timeout.*"),
    # GPUs often report an error at the wrong line, so only the kind of message counts.
    Rule("nan_logits", "configuration", r"Detected errors during sampling.*NaN.*"),
    Rule(
        "cuda_error",
        "configuration",
        r".*(an illegal memory access|illegal instruction|device-side assert"
        r"|cudaErrorIllegalAddress|misaligned address).*",
    ),
    Rule(
        "missing_module",
        "configuration",
        r"^(ImportError|ModuleNotFoundError): .*"
        r"|^Exception: \S+ with minimum required version .*is not installed.*",
        "SGLang's installation lacks a package that this configuration needs",
    ),
    Rule("cuda_graph_failed", "configuration", r"Capture .*graph failed: .*", phase="cuda_graph"),
    # Ended from outside (-15: by a service manager). SGLang also ends its own group with -9, so the
    # exit code alone proves nothing. A scheduler that SGLang reports as killed does.
    Rule(
        "scheduler_killed",
        "host",
        r"Subprocess scheduler_\d+ .*crashed with exit code -(9|15)\b.*"
        r"|scheduler died during initialization \(exit code: -(9|15)\).*"  # since 0.5.17
        r"|scheduler is dead\..*\n.*Exit code: -(9|15)\b.*",  # 0.5.9
        "another process killed the scheduler, usually the kernel's out-of-memory killer "
        "(dmesg -T | grep -i oom)",
    ),
)


def clock_refused(failure: Failure, intent: LaunchIntent) -> bool:
    """Whether a launch failed only because the plugin refused the cycle clock or its hooks."""
    if failure.kind != "plugin_refused":
        return False
    found = re.search(_PLUGIN_REFUSED, failure.message)
    return found is not None and (found["capability"] == "clock" or not prepared_settings(intent))
