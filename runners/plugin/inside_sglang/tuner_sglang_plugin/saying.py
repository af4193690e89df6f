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
"""The process that was started, for those that it starts; set by the plugin itself."""

EXIT_CODE = 78
"""Of a process that refuses (`EX_CONFIG`). A scheduler's end ends the server, with another code."""

_TOLD_S = 1.0
"""Until who was told by a signal is ended."""


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
            time.sleep(_TOLD_S)
            if os.getppid() == parent:
                os.kill(parent, signal.SIGKILL)
        os._exit(EXIT_CODE)
    raise SystemExit(EXIT_CODE)
