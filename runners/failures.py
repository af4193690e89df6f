"""Why a server failed: recognised from the end of its log, its exit code and its phase.

To teach the tuner a new failure, add a rule to `_RULES`; the first that matches wins, so causes
stand before their consequences. Texts are those of SGLang 0.5.9 to 0.5.23.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.records import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from results.records import Fault


@dataclass(frozen=True, slots=True)
class _Rule:
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

_RULES: tuple[_Rule, ...] = (
    # The command line (exit code 2).
    _Rule(
        "unknown_flag",
        "study",
        re.compile(r"error: unrecognized arguments: .*"),
        "this version of SGLang has no such flag",
        "arguments",
    ),
    _Rule(
        "bad_flag_value",
        "study",
        re.compile(r"error: argument --\S+.*|error: ambiguous option: .*"),
        phase="arguments",
    ),
    _Rule(
        "missing_flag",
        "study",
        re.compile(r"error: the following arguments are required: .*"),
        phase="arguments",
    ),
    # The host.
    _Rule(
        "port_taken",
        "host",
        _re(
            r"address already in use|_port .*is used by a process already"
            r"|port .*is not available in \d+ seconds"
        ),
        "another process listens on a port of this launch",
    ),
    _Rule("disk_full", "host", _re(r"No space left on device"), "free some disk space"),
    _Rule(
        "gpu_unusable",
        "host",
        _re(
            r"no CUDA-capable device|CUDA driver version is insufficient|GPU is lost|\bXid\b"
            r"|CUDA unknown error|No accelerator .* is available|Found no NVIDIA driver"
        ),
        "check the driver and the devices (nvidia-smi)",
    ),
    # Models and drafts.
    _Rule(
        "draft_not_found",
        "study",
        _MODEL_MISSING,
        "the draft model was not found: check `model.draft`, HF_HUB_OFFLINE and the cache",
        also=_in_speculative_hook,
    ),
    _Rule(
        "model_not_found",
        "study",
        _MODEL_MISSING,
        "the model was not found: check `model.path`, HF_HUB_OFFLINE and the cache",
    ),
    _Rule(
        "trust_remote_code",
        "study",
        _re(r".*(pass the argument|set the option) `?trust_remote_code=True.*"),
        "set `trust-remote-code: true` under `server.flags` if you trust the model's code",
    ),
    _Rule(
        "context_too_long", "study", _re(r"ValueError: .*greater than the derived context_length")
    ),
    _Rule(
        "draft_missing",
        "study",
        _re(r"has no attribute 'hot_token_id'"),
        "this algorithm needs a draft of its own: set `model.draft`",
    ),
    _Rule(
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
    _Rule(
        "tree_too_large",
        "configuration",
        _re(r"selected index k out of range"),
        "more draft tokens than the draft tree has nodes",
    ),
    _Rule(
        "unsupported_backend",
        "configuration",
        _re(
            r"ValueError: .*is not supported in \w+ attention backend.*"
            r"|ValueError: .*backend only supports topk = 1.*"
            r"|ValueError: .*topk > 1 with page_size > 1.*"
        ),
    ),
    _Rule(
        "invalid_speculation",
        "configuration",
        _re(r"ValueError: Unknown speculative algorithm.*"),
    ),
    _Rule(
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
    _Rule(
        "nccl_out_of_memory",
        "configuration",
        _re(r"Failed to CUDA (c|m)alloc(Async)? .*"),
        "NCCL's buffers did not fit beside the KV pool",
    ),
    _Rule(
        "nccl_invalid_usage",
        "configuration",
        _re(r"NCCL error: invalid (usage|argument).*"),
        "NCCL refuses this setting; with NCCL_DEBUG=WARN the log names the cause",
    ),
    _Rule(
        "nccl_system_error",
        "host",
        _re(
            r"NCCL error: (unhandled (system|cuda) error|remote process exited|internal error).*"
            r"|ncclSystemError.*|ncclRemoteError.*|ncclUnhandledCudaError.*"
        ),
        "NCCL_DEBUG=WARN makes the log name the cause",
    ),
    _Rule("nccl_error", "configuration", _re(r"NCCL error: .*|ncclInvalidUsage.*")),
    # Memory: two opposite failures.
    _Rule(
        "kv_pool_too_small",
        "configuration",
        _re(r"Not enough memory\. Please try to increase --mem-fraction-static.*"),
        phase="kv_cache",
    ),
    _Rule(
        "cuda_oom",
        "configuration",
        _re(r".*CUDA out of memory.*|.*OutOfMemoryError.*|CUDA error: out of memory.*"),
        "lower mem-fraction-static, or capture graphs for smaller batches",
    ),
    _Rule(
        "host_out_of_memory",
        "host",
        _re(r"DefaultCPUAllocator: can't allocate memory.*|^MemoryError.*"),
        "the host's memory is used up",
    ),
    # Hangs that SGLang noticed itself.
    _Rule("hang_watchdog", "configuration", _re(r".*watchdog timeout.*")),
    # What a GPU reports, often at the wrong line: the family of the message counts.
    _Rule("nan_logits", "configuration", _re(r"Detected errors during sampling.*NaN.*")),
    _Rule(
        "cuda_error",
        "configuration",
        _re(
            r".*(an illegal memory access|illegal instruction|device-side assert"
            r"|cudaErrorIllegalAddress|misaligned address).*"
        ),
    ),
    _Rule(
        "missing_module",
        "configuration",
        re.compile(r"^(ImportError|ModuleNotFoundError): .*", re.MULTILINE),
        "SGLang's installation lacks what this configuration needs",
    ),
    _Rule(
        "cuda_graph_failed",
        "configuration",
        _re(r"Capture .*graph failed: .*"),
        phase="cuda_graph",
    ),
    # Processes that were killed from outside. -9 is also how SGLang ends its own group, so the
    # exit code alone says nothing; a scheduler reported as killed does.
    _Rule(
        "scheduler_killed",
        "host",
        _re(
            r"Subprocess scheduler_\d+ .*crashed with exit code -9.*"
            r"|scheduler died during initialization \(exit code: -9\).*"
        ),
        "something outside killed it; the kernel's out-of-memory killer is the usual one "
        "(dmesg -T | grep -i oom)",
    ),
)

_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt)\b(?::.*)?$")
_LOCATION = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_NOISE = re.compile(
    r"^\s|^\[[^\]]*\] (kill_process_tree|Received sigquit|SIGQUIT received|Sleeping \d+ seconds"
    r"|No live scheduler)|^###|^Traceback|^During handling|^The above exception|^Possible solutions"
    r"|^\d\. |^Open an issue|^$|it/s\]|^Capturing batches|UserWarning"
)
# SGLang prints all its arguments, and uvicorn every request: neither is a symptom.
_ECHO = re.compile(r"^.*(server_args=|INFO: +\S+:\d+ - \"[A-Z]+ ).*\n?", re.MULTILINE)
_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\]\s*")
_FLAG = re.compile(r"--([\w-]+)")
_LONGEST = 400


def recognise(
    tail: str, *, exit_code: int | None, phase: str, varied_flags: Collection[str] = ()
) -> Failure:
    """Names the failure of a server that ended or must be ended.

    Args:
        tail: The end of its log.
        exit_code: As Python has it; `None` for a server that still lives.
        phase: The phase that it was in.
        varied_flags: Flags that the study varies: a bad value of one of them is the
            configuration's fault, not the study's.
    """
    tail = _ECHO.sub("", tail)
    for rule in _RULES:
        found = rule.pattern.search(tail)
        if found is None or not rule.also(tail):
            continue
        line = _line_around(tail, found)
        fault = rule.fault
        if rule.kind in {"bad_flag_value", "unknown_flag"}:
            named = _FLAG.search(found[0])
            if named is not None and named[1] in varied_flags:
                fault = "configuration"
        if _EXCEPTION.match(line) and ":" not in line:
            line = _located(tail, line)
        message = f"{line} ({rule.hint})" if rule.hint else line
        return Failure(rule.kind, rule.phase or phase, fault, _shortened(message))
    return _unknown(tail, exit_code, phase)


def ready_timeout(tail: str, *, phase: str, seconds: float) -> Failure:
    """The failure of a server that stood still in `phase` for `seconds`."""
    last = _last_meaningful(_ECHO.sub("", tail)) or "the log is empty"
    return Failure(
        "ready_timeout",
        phase,
        "configuration",
        _shortened(f"no progress in {phase} for {seconds:.0f} s; last line: {last}"),
    )


def _unknown(tail: str, exit_code: int | None, phase: str) -> Failure:
    last = _last_meaningful(tail) or "the log is empty"
    if exit_code is not None and exit_code < 0 and "kill_process_tree" not in tail:
        # SGLang says so when it ends its own group; nothing of the kind here.
        message = f"ended by signal {-exit_code} from outside; last line: {last}"
        return Failure("server_killed", phase, "host", _shortened(message))
    how = "lives" if exit_code is None else f"exit code {exit_code}"
    return Failure(
        "server_crashed", phase, "configuration", _shortened(f"{_located(tail, last)} ({how})")
    )


def _line_around(tail: str, found: re.Match[str]) -> str:
    start = tail.rfind("\n", 0, found.start()) + 1
    end = tail.find("\n", found.start())
    line = tail[start : end if end >= 0 else len(tail)]
    return _STAMP.sub("", line).strip()


def _last_meaningful(tail: str) -> str:
    lines = tail.splitlines()
    for line in reversed(lines):
        if _EXCEPTION.match(line):
            return line.strip()
    for line in reversed(lines):
        if not _NOISE.search(line):
            return _STAMP.sub("", line).strip()
    return ""


def _located(tail: str, line: str) -> str:
    """A bare exception with the place that raised it."""
    if not _EXCEPTION.match(line) or ":" in line:
        return line
    before = tail[: tail.rfind(line)]
    place = None
    for text in before.splitlines():
        place = _LOCATION.match(text) or place
    if place is None:
        return line
    file = place["file"].rsplit("/", 1)[-1]
    return f"{line} at {file}:{place['line']} in {place['name']}"


def _shortened(message: str) -> str:
    return message if len(message) <= _LONGEST else message[: _LONGEST - 3] + "..."
