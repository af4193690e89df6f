"""Lines in the server's log.

They are written by hand, not logged: the log level of the server does not hide them, and they begin
in the first column, also in a process whose logging is not set up yet.
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
    """Writes one line, in one piece: several processes share the log."""
    sys.stderr.write(f"{NAME}: {message}\n")
    sys.stderr.flush()


def refuse(capability: str, reason: str) -> NoReturn:
    """Ends this process, and the server with it.

    SGLang catches every `Exception` of a plugin and of a scheduler's start, and would go on without
    what was asked for; `SystemExit` passes (0.5.17, 0.5.23). In a process that SGLang started it
    could still wait for threads of NCCL or ZMQ for ever, so that ends at once: the main process
    looks at the pipe and at the process itself (`_wait_for_scheduler_ready`), and raises. The
    controller of data parallelism looks at neither: it is told as SGLang tells it, by a signal,
    and ended where it ignores that (a job that a shell started in the background does).
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
