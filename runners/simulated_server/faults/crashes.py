"""Crashes of SGLang 0.5.23: log lines, tracebacks and exit statuses.

The texts are data: see `data/crashes/README.md`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from runners.simulated_server.launch.flags import ResolvedFlags
    from runners.simulated_server.launch.log import ServerLog
    from runners.simulated_server.launch.speculative_flags import FlagsRefusedError

PORT_TAKEN = 3
"""Exit status of a server whose port is in use."""

PLUGIN_REFUSES = 78
"""Exit status of a server whose plugin does not support the request."""

_REFUSED = 1
_KILLED = 137
_SETTLE_S = 5.0
_WATCHDOG_S = 300.0
_CORE_DUMP_S = 60.0
_MEM_FRACTION = 0.835
"""SGLang's default of `--mem-fraction-static` on an 80 GB GPU (0.5.23)."""
_RPC_PORT_OFFSET = 236

_TEXTS = Path(__file__).parents[1] / "data" / "crashes"
_SITE = "/srv/venv/lib/python3.11/site-packages/sglang/"
_STARTING = frozenset({"distributed", "load_weight", "load_draft", "kv_cache", "cuda_graph"})


def refuse_flags(log: ServerLog, error: FlagsRefusedError) -> NoReturn:
    """Log the launcher's traceback and exit with status 1."""
    text = _traceback(error.trace)
    if error.frame is not None:
        file, line, function, source = error.frame
        text += f'  File "{_SITE}{file}", line {line}, in {function}\n    {source}\n'
    _end_launcher(log, text + error.last_line)


def crash(
    log: ServerLog,
    phase: str,
    cause: str,
    flags: ResolvedFlags,
    *,
    time_scale: float = 1.0,
    lingers: bool = False,
) -> NoReturn:
    """Log a crash and end the process.

    Args:
        log: The server's log.
        phase: Phase of the start-up, `serving`, `idle` or `flush`.
        cause: A cause in `data/crashes/last_lines.yaml`, or `killed` or `watchdog`.
        flags: Flags of the server; the last line quotes some.
        time_scale: Simulated seconds per real second.
        lingers: Whether SGLang waits for core dumps first; only while serving.
    """
    if cause == "killed" and phase not in _STARTING:
        _scheduler_killed(log, time_scale)
    if cause == "watchdog":
        _watchdog(log, flags, time_scale)
    import yaml  # noqa: PLC0415 - only a crash needs it

    table = yaml.safe_load((_TEXTS / "last_lines.yaml").read_text())
    entry = table.get(phase, {}).get(cause) or table["anywhere"][cause]
    name = entry.get("traceback", "forward" if flags.algorithm is None else "verify")
    values = table["texts"] | _values(flags)
    text = _traceback(name) + entry["last_line"].format_map(values)
    if phase == "arguments" or cause == "killed":
        _end_launcher(log, text)
    if "before" in entry:
        log.raw(entry["before"])
    log.ranks(f"Scheduler hit an exception: {text}\n")
    if phase in _STARTING:
        log.main("Received sigquit from a child process. It usually means the child failed.")
        _kill(log)
    _end_after_sigquit(log, time_scale, lingers=lingers)


def watchdog_s(flags: ResolvedFlags) -> float:
    """Seconds without progress after which SGLang ends itself."""
    return float(flags.values.get("watchdog_timeout", _WATCHDOG_S))


def _values(flags: ResolvedFlags) -> dict[str, Any]:
    """Values that the last lines quote."""
    return {
        "mem_fraction_static": flags.values.get("mem_fraction_static", _MEM_FRACTION),
        "model_path": flags.values.get("model_path"),
        "rpc_port": int(flags.values.get("port", 30000)) + _RPC_PORT_OFFSET,
        "draft_backend": flags.draft_attention_backend,
        "path": flags.num_steps + 1,
        "width": flags.num_draft_tokens,
    }


def _scheduler_killed(log: ServerLog, time_scale: float) -> NoReturn:
    log.main(
        f"Subprocess scheduler_0 (pid={os.getpid()}) crashed with exit code -9. "
        "Triggering SIGQUIT for cleanup..."
    )
    _end_after_sigquit(log, time_scale)


def _watchdog(log: ServerLog, flags: ResolvedFlags, time_scale: float) -> NoReturn:
    log.scheduler("No sglang scheduler processes found for py-spy dump.")
    timeout = watchdog_s(flags)
    log.scheduler(f"Scheduler watchdog timeout (self.watchdog_timeout={timeout}, self.soft=False)")
    log.raw("")
    time.sleep(_SETTLE_S / time_scale)
    _end_after_sigquit(log, time_scale)


def _end_launcher(log: ServerLog, text: str) -> NoReturn:
    pid = os.getpid()
    log.main(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
    log.raw(text)
    sys.exit(_REFUSED)


def _end_after_sigquit(log: ServerLog, time_scale: float, *, lingers: bool = False) -> NoReturn:
    log.main("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    log.main("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
    time.sleep(_SETTLE_S / time_scale)
    if lingers:
        # SGLang 0.5.23 does this when a scheduler still lives; also seen on a CPU.
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
    # The process group belongs to another process: end this process only.
    os._exit(_KILLED)


def _traceback(name: str) -> str:
    return (_TEXTS / f"{name}.txt").read_text()
