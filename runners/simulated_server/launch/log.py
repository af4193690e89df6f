"""The server's log, in SGLang's words and shape, on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any

_DATE = "%Y-%m-%d %H:%M:%S"


class ServerLog:
    """Writes lines as SGLang's launcher and its schedulers do.

    Args:
        tp_size: Above 1, the schedulers' lines name their rank.
    """

    def __init__(self, tp_size: int = 1) -> None:
        self._ranks = tuple(f" TP{rank}" for rank in range(tp_size)) if tp_size > 1 else ("",)

    def main(self, message: str) -> None:
        """A line of the launching process."""
        self.raw(f"[{time.strftime(_DATE)}] {message}")

    def scheduler(self, message: str) -> None:
        """A line of the first scheduler."""
        self.raw(f"[{time.strftime(_DATE)}{self._ranks[0]}] {message}")

    def ranks(self, message: str) -> None:
        """A line that the scheduler of every rank writes."""
        now = time.strftime(_DATE)
        # In one piece, as the first rank's line may be all that a follower of the log has read.
        self.raw("\n".join(f"[{now}{rank}] {message}" for rank in self._ranks))

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
