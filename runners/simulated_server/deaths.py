"""How SGLang dies: its log lines, and its exit statuses."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from runners.simulated_server.log import ServerLog
    from runners.simulated_server.resolution import FlagsRefusedError

PORT_TAKEN = 3
"""Exit status of a server whose port is taken."""

_KILLED = 137
_SETTLE_S = 5.0

_CUDA_OOM = (
    "CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 94.97 GiB of "
    "which 512.00 MiB is free. Including non-PyTorch memory, this process has 94.45 GiB memory in "
    "use. Of the allocated memory 92.10 GiB is allocated by PyTorch, and 1.02 GiB is reserved by "
    "PyTorch but unallocated."
)
_GRAPH_ADVICE = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)\n"
    "3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. (Not recommended. Huge "
    "performance loss)\n"
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"
)

_Frames = tuple[tuple[str, str], ...]

_SCHEDULER = (("srt/managers/scheduler.py", "run_scheduler_process"),)
_INIT = (*_SCHEDULER, ("srt/managers/scheduler.py", "init_model_worker"))
_EVENT_LOOP = (*_SCHEDULER, ("srt/managers/scheduler.py", "event_loop_overlap"))
_RUNNER = "srt/model_executor/runner/decode_cuda_graph_runner.py"


def refuse_flags(log: ServerLog, error: FlagsRefusedError) -> NoReturn:
    """The launcher's traceback; exit status 1."""
    log.main(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=False")
    log.raw(_traceback((("launch_server.py", "run_server"), *error.frames), error.last_line))
    sys.exit(1)


def out_of_memory(log: ServerLog, phase: str) -> NoReturn:
    """CUDA runs out of memory during the start-up, in the capture of graphs or elsewhere."""
    frames: _Frames
    if phase == "cuda_graph":
        frames = (
            *_INIT,
            ("srt/managers/scheduler.py", "init_all_cuda_graphs"),
            (_RUNNER, "__init__"),
        )
        line = f"Exception: Capture cuda graph failed: {_CUDA_OOM}\n{_GRAPH_ADVICE}"
    elif phase == "load_weight":
        frames = (*_INIT, ("srt/model_executor/model_runner.py", "load_model"))
        line = f"torch.OutOfMemoryError: {_CUDA_OOM}"
    else:
        _die_serving(log, _EVENT_LOOP, f"torch.OutOfMemoryError: {_CUDA_OOM}", 0.0)
    log.scheduler(f"Scheduler hit an exception: {_traceback(frames, line)}")
    log.raw("")
    _die_starting(log)


def draft_missing(log: ServerLog) -> NoReturn:
    """EAGLE-3 without a draft: SGLang finds out when it shares the output layer."""
    frames = (
        *_INIT,
        ("srt/managers/scheduler.py", "init_memory_pools"),
        ("srt/speculative/eagle_worker_v2.py", "init_lm_head"),
    )
    line = "AttributeError: 'LlamaForCausalLM' object has no attribute 'hot_token_id'"
    log.scheduler(f"Scheduler hit an exception: {_traceback(frames, line)}")
    log.raw("")
    _die_starting(log)


def tree_too_large(log: ServerLog, time_scale: float) -> NoReturn:
    """More draft tokens than the tree can have: dies in the warm-up request."""
    frames = (
        *_EVENT_LOOP,
        ("srt/managers/scheduler.py", "run_batch"),
        ("srt/speculative/eagle_worker_v2.py", "draft"),
        ("srt/speculative/eagle_utils.py", "organize_draft_results"),
    )
    _die_serving(log, frames, "RuntimeError: selected index k out of range", _SETTLE_S / time_scale)


def scheduler_crashed(log: ServerLog, time_scale: float) -> NoReturn:
    """The scheduler is gone while it served."""
    log.main(
        f"Subprocess scheduler_0 (pid={os.getpid()}) crashed with exit code -9. Triggering SIGQUIT "
        "for cleanup..."
    )
    _die_after_sigquit(log, _SETTLE_S / time_scale)


def _die_starting(log: ServerLog) -> NoReturn:
    log.main("Received sigquit from a child process. It usually means the child failed.")
    _kill(log)


def _die_serving(log: ServerLog, frames: _Frames, line: str, settle_s: float) -> NoReturn:
    log.scheduler(f"Scheduler hit an exception: {_traceback(frames, line)}")
    log.raw("")
    _die_after_sigquit(log, settle_s)


def _die_after_sigquit(log: ServerLog, settle_s: float) -> NoReturn:
    log.main("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    log.main("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
    time.sleep(settle_s)
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


def _traceback(frames: _Frames, last_line: str) -> str:
    lines = [f'  File "sglang/{file}", in {function}' for file, function in frames]
    return "\n".join(("Traceback (most recent call last):", *lines, last_line))
