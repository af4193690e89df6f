"""How SGLang dies: its log lines, and its exit statuses.

The tracebacks are files, see `data/deaths/README.md`; their last lines are here, because the
numbers in them follow the flags.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from runners.simulated_server.faults import crash_messages as words

if TYPE_CHECKING:
    from collections.abc import Callable

    from runners.simulated_server.launch.flag_resolver import FlagsRefusedError
    from runners.simulated_server.launch.flag_state import ResolvedFlags
    from runners.simulated_server.launch.log import ServerLog

PORT_TAKEN = 3
"""Exit status of a server whose port is taken."""

PLUGIN_REFUSES = 78
"""Exit status of a server whose plugin was asked for what it cannot do."""

_REFUSED = 1
_KILLED = 137
_SETTLE_S = 5.0
_WATCHDOG_S = 300.0
_CORE_DUMP_S = 60.0

_TRACES = Path(__file__).parents[1] / "data" / "deaths"
_SITE = "/srv/venv/lib/python3.11/site-packages/sglang/"


@dataclass(frozen=True, slots=True)
class Death:
    """What a scheduler dies of.

    Attributes:
        trace: Name of the traceback; by what it was doing, if empty.
        last_line: The traceback's last line or lines, for the flags that the server runs.
        before: A line that stands before it.
    """

    trace: str
    last_line: Callable[[ResolvedFlags], str]
    before: str = ""


_DEATHS: dict[tuple[str, str], Death] = {
    ("distributed", "nccl_invalid_usage"): Death("nccl_protocol", words.nccl_invalid_usage),
    ("distributed", "nccl_system_error"): Death("nccl_protocol", words.nccl_system_error),
    ("distributed", "nccl_out_of_memory"): Death(
        "nccl_protocol", words.nccl_cuda_error, words.NCCL_CALLOC
    ),
    ("load_weight", "cuda_oom"): Death("weights", words.out_of_memory),
    ("load_draft", "cuda_oom"): Death("draft_weights", words.out_of_memory),
    ("load_draft", "draft_mismatch"): Death("draft_weights", words.draft_mismatch),
    ("load_draft", "draft_key_missing"): Death("draft_weights", words.draft_key_missing),
    ("kv_cache", "kv_pool_too_small"): Death("kv_pool", words.kv_pool_too_small),
    ("kv_cache", "no_room_for_kv"): Death("kv_weights", words.no_room_for_kv),
    ("kv_cache", "cuda_oom"): Death("kv_cache", words.out_of_memory),
    ("kv_cache", "missing_module"): Death("missing_fa3", words.missing_fa3),
    ("cuda_graph", "cuda_oom"): Death("capture", words.capture_out_of_memory),
    ("cuda_graph", "states_oom"): Death("states", words.capture_out_of_memory),
    ("cuda_graph", "illegal_access"): Death("capture", words.capture_illegal_access),
    ("cuda_graph", "nccl_invalid_usage"): Death("nccl_capture", words.capture_nccl),
    ("cuda_graph", "nccl_out_of_memory"): Death(
        "nccl_capture", words.capture_nccl_cuda_error, words.NCCL_CALLOC
    ),
    ("cuda_graph", "missing_module"): Death("missing_deep_gemm", words.missing_deep_gemm),
    ("warmup", "draft_mismatch"): Death("draft_shape", words.draft_shape),
    ("warmup", "missing_mask"): Death("forward", words.missing_mask),
    ("warmup", "replay_ssm"): Death("forward", words.replay_ssm),
    ("warmup", "kernel_assertion"): Death("forward", words.kernel_assertion),
    ("", "cuda_oom"): Death("", words.out_of_memory),
    ("", "illegal_access"): Death("", words.illegal_access),
    ("", "illegal_instruction"): Death("", words.illegal_instruction),
    ("", "nan_logits"): Death("", words.device_assert, words.NAN_LOGITS),
    ("", "gather_index"): Death("draft_extend", words.device_assert, words.GATHER_INDEX),
}
_STARTING = frozenset({"distributed", "load_weight", "load_draft", "kv_cache", "cuda_graph"})


def refuse_flags(log: ServerLog, error: FlagsRefusedError) -> NoReturn:
    """The launcher's traceback; exit status 1."""
    text = _traceback(error.trace)
    if error.frame is not None:
        file, line, function, source = error.frame
        text += f'  File "{_SITE}{file}", line {line}, in {function}\n    {source}\n'
    _launcher_dies(log, text + error.last_line)


def die(
    log: ServerLog,
    phase: str,
    cause: str,
    flags: ResolvedFlags,
    *,
    time_scale: float = 1.0,
    lingers: bool = False,
) -> NoReturn:
    """Dies of a cause of `misbehaviour.CAUSES`.

    Args:
        log: Where it says so.
        phase: Where it is.
        cause: What it dies of.
        flags: What it runs.
        time_scale: Simulated seconds per real second.
        lingers: Whether it waits for core dumps before it ends; while it serves only.
    """
    if phase == "arguments":
        trace, line = words.LAUNCHER[cause]
        _launcher_dies(log, _traceback(trace) + line(flags))
    if cause == "killed":
        if phase in _STARTING:
            _launcher_dies(log, _traceback("killed_in_start") + words.KILLED_IN_START)
        scheduler_crashed(log, time_scale)
    if cause == "watchdog":
        _watchdog(log, flags, time_scale)
    death = _DEATHS.get((phase, cause)) or _DEATHS["", cause]
    name = death.trace or ("forward" if flags.algorithm is None else "verify")
    if death.before:
        log.raw(death.before)
    text = _traceback(name) + death.last_line(flags)
    _scheduler_dies(log, phase, text, time_scale, lingers=lingers)


def watchdog_s(flags: ResolvedFlags) -> float:
    """Seconds of standstill after which SGLang ends itself."""
    return float(flags.values.get("watchdog_timeout", _WATCHDOG_S))


def draft_missing(log: ServerLog) -> NoReturn:
    """EAGLE-3 without a draft: SGLang finds out when it shares the output layer."""
    _scheduler_dies(log, "kv_cache", _traceback("draft_missing") + words.DRAFT_MISSING)


def backend_unsupported(log: ServerLog, backend: str) -> NoReturn:
    """A backend that cannot draft: SGLang finds out after the memory pools."""
    line = f"ValueError: EAGLE is not supported in decode attention backend {backend}"
    _scheduler_dies(log, "kv_cache", _traceback("torch_native") + line)


def tree_too_large(log: ServerLog, time_scale: float) -> NoReturn:
    """More draft tokens than the tree can have: dies in the warm-up request."""
    text = _traceback("tree_too_large") + "RuntimeError: selected index k out of range"
    _scheduler_dies(log, "warmup", text, time_scale)


def tree_too_narrow(log: ServerLog, flags: ResolvedFlags, time_scale: float) -> NoReturn:
    """Fewer tokens than a path through the tree: dies in the warm-up request."""
    text = _traceback("narrow_tree") + words.narrow_tree(flags)
    _scheduler_dies(log, "warmup", text, time_scale)


def nccl_refuses(log: ServerLog, trace: str, flags: ResolvedFlags) -> NoReturn:
    """NCCL does not take its variables."""
    last = words.capture_nccl if trace == "nccl_capture" else words.nccl_invalid_usage
    phase = "cuda_graph" if trace == "nccl_capture" else "distributed"
    _scheduler_dies(log, phase, _traceback(trace) + last(flags))


def scheduler_crashed(log: ServerLog, time_scale: float, exit_code: int = -9) -> NoReturn:
    """The scheduler is gone while it served."""
    log.main(
        f"Subprocess scheduler_0 (pid={os.getpid()}) crashed with exit code {exit_code}. "
        "Triggering SIGQUIT for cleanup..."
    )
    _die_after_sigquit(log, time_scale)


def _watchdog(log: ServerLog, flags: ResolvedFlags, time_scale: float) -> NoReturn:
    log.scheduler("No sglang scheduler processes found for py-spy dump.")
    timeout = watchdog_s(flags)
    log.scheduler(f"Scheduler watchdog timeout (self.watchdog_timeout={timeout}, self.soft=False)")
    log.raw("")
    time.sleep(_SETTLE_S / time_scale)
    _die_after_sigquit(log, time_scale)


def _launcher_dies(log: ServerLog, text: str) -> NoReturn:
    pid = os.getpid()
    log.main(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
    log.raw(text)
    sys.exit(_REFUSED)


def _scheduler_dies(
    log: ServerLog, phase: str, text: str, time_scale: float = 1.0, *, lingers: bool = False
) -> NoReturn:
    log.ranks(f"Scheduler hit an exception: {text}\n")
    if phase in _STARTING:
        log.main("Received sigquit from a child process. It usually means the child failed.")
        _kill(log)
    _die_after_sigquit(log, time_scale, lingers=lingers)


def _die_after_sigquit(log: ServerLog, time_scale: float, *, lingers: bool = False) -> NoReturn:
    log.main("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    log.main("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
    time.sleep(_SETTLE_S / time_scale)
    if lingers:
        # What it does where a scheduler still lives, hung: seen on a CPU too (0.5.23).
        log.main(f"All pyspy dump attempts failed for PID {os.getpid()}.")
        log.main("No sglang scheduler processes found for CUDA coredump.")
        log.main(f"Waiting {_CORE_DUMP_S} seconds for CUDA coredumps before exiting.")
        time.sleep(_CORE_DUMP_S / time_scale)
    else:
        log.main("No live scheduler processes found; skipping py-spy and CUDA coredump.")
    _kill(log)


def _kill(log: ServerLog) -> NoReturn:
    pid = os.getpid()
    log.main(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
    if os.getpgrp() == pid:
        os.killpg(pid, signal.SIGKILL)
        signal.pause()
    # Not the leader of a group of its own: the group is somebody else's too.
    os._exit(_KILLED)


def _traceback(name: str) -> str:
    return (_TRACES / f"{name}.txt").read_text()
