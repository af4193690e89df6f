"""Lines in the server's log.

The lines are written directly, so the server's log level does not hide them. They begin in the
first column, also in a process without logging.
"""

import multiprocessing
import os
import signal
import sys
import time
from typing import NoReturn

NAME = "tuner_sglang_plugin"

MAIN_VARIABLE = "TUNER_SERVER_MAIN"
"""Process id of the server's main process, which the plugin sets for its children."""

EXIT_CODE = 78
"""Exit code of a refusal (`EX_CONFIG`). A server whose scheduler refuses has another code."""

_SIGNAL_S = 1.0
"""Seconds from SGLang's failure signal to the kill."""


def say(message: str) -> None:
    """Write one line in one piece, because several processes share the log."""
    sys.stderr.write(f"{NAME}: {message}\n")
    sys.stderr.flush()


def refuse(capability: str, reason: str) -> NoReturn:
    """End this process, and the server with it.

    SGLang catches every `Exception` of a plugin and of a scheduler's start and would continue
    without the capability; `SystemExit` passes (0.5.17, 0.5.23). A process that SGLang started
    might wait for threads of NCCL or ZMQ forever, so it ends at once: the main process watches the
    pipe and the process (`_wait_for_scheduler_ready`) and raises. The controller of data
    parallelism watches neither, so it gets SGLang's signal, and is killed if it ignores the signal
    (as a background job of a shell does).
    """
    say(f"REFUSED {capability}: {reason}")
    if multiprocessing.parent_process() is not None:
        sys.stdout.flush()
        if os.environ.get(MAIN_VARIABLE) != str(os.getppid()):
            parent = os.getppid()
            os.kill(parent, signal.SIGQUIT)
            time.sleep(_SIGNAL_S)
            if os.getppid() == parent:
                os.kill(parent, signal.SIGKILL)
        os._exit(EXIT_CODE)
    raise SystemExit(EXIT_CODE)


def place() -> str:
    """Rank of this process among those that serve one model, and their number."""
    import torch.distributed as dist  # noqa: PLC0415 - the server's; in schedulers only

    if not dist.is_initialized():
        return "rank=0/1"
    return f"rank={dist.get_rank()}/{dist.get_world_size()}"
