"""The server's log, in SGLang's words and shape, on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any

_DATE = "%Y-%m-%d %H:%M:%S"


class ServerLog:
    """Writes lines as SGLang's launcher and its rank 0 scheduler do.

    Args:
        tp_size: Above 1, the scheduler's lines name their rank.
    """

    def __init__(self, tp_size: int = 1) -> None:
        self._rank = " TP0" if tp_size > 1 else ""

    def main(self, message: str) -> None:
        """A line of the launching process."""
        self.raw(f"[{time.strftime(_DATE)}] {message}")

    def scheduler(self, message: str) -> None:
        """A line of the scheduler."""
        self.raw(f"[{time.strftime(_DATE)}{self._rank}] {message}")

    def raw(self, text: str) -> None:
        """Text as it is: tracebacks, progress bars."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def uvicorn_log_config() -> dict[str, Any]:
    """The logging configuration that gives uvicorn's lines SGLang's shape."""
    formatter = {"datefmt": _DATE, "use_colors": False}
    access = '%(client_addr)s - "%(request_line)s" %(status_code)s'
    prefix = "[%(asctime)s] %(levelprefix)s "
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "default": {
                "()": "uvicorn.logging.DefaultFormatter",
                "fmt": prefix + "%(message)s",
                **formatter,
            },
            "access": {
                "()": "uvicorn.logging.AccessFormatter",
                "fmt": prefix + access,
                **formatter,
            },
        },
        "handlers": {
            name: {"class": "logging.StreamHandler", "formatter": name}
            for name in ("default", "access")
        },
        "loggers": {
            "uvicorn": {"handlers": ["default"], "level": "INFO", "propagate": False},
            "uvicorn.access": {"handlers": ["access"], "level": "INFO", "propagate": False},
        },
    }
