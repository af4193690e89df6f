"""The server's log on stderr, in SGLang's format and words."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.simulated_server.engine.counters import Counters
    from runners.simulated_server.engine.scheduler import Prefill, Scheduler

_DATE = "%Y-%m-%d %H:%M:%S"


class ServerLog:
    """Writes lines of SGLang's launcher and schedulers.

    Args:
        tp_size: Number of schedulers; above 1, their lines name the rank.
    """

    def __init__(self, tp_size: int = 1) -> None:
        self._ranks = tuple(f" TP{rank}" for rank in range(tp_size)) if tp_size > 1 else ("",)

    def main(self, message: str) -> None:
        """Write a line of the launcher."""
        self.raw(f"[{time.strftime(_DATE)}] {message}")

    def scheduler(self, message: str) -> None:
        """Write a line of the first scheduler."""
        self.raw(f"[{time.strftime(_DATE)}{self._ranks[0]}] {message}")

    def ranks(self, message: str) -> None:
        """Write a line of every scheduler."""
        now = time.strftime(_DATE)
        # One write: a reader of the log must not see only the first rank's line.
        self.raw("\n".join(f"[{now}{rank}] {message}" for rank in self._ranks))

    def raw(self, text: str) -> None:
        """Write text without a prefix."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class BatchLog:
    """Makes the log lines of batches, as SGLang 0.5.23 does (`metrics_reporter.py`).

    Args:
        flags: Flags of the server by destination.
    """

    def __init__(self, flags: Mapping[str, Any], scheduler: Scheduler) -> None:
        cpu = flags.get("device") == "cpu"
        self._label = "cpu graph" if cpu else "cuda graph"
        self._replays = not (cpu or flags.get("disable_cuda_graph"))
        self._scheduler = scheduler
        self._last_prefill = 0.0

    def prefill(self, prefill: Prefill, now: float) -> str:
        """Return the line of a prefill that begins at `now`, in seconds of a monotonic clock."""
        scheduler = self._scheduler
        passed, self._last_prefill = now - self._last_prefill, now
        throughput = prefill.new_tokens / passed if passed > 0.0 else 0.0
        waiting = sum(request.prompt_tokens for request in scheduler.waiting)
        return (
            f"Prefill batch, #new-seq: {prefill.fresh}, #new-token: {prefill.new_tokens}, "
            f"#cached-token: {prefill.cached_tokens}, token usage: {scheduler.token_usage:.2f}, "
            f"#running-req: {len(scheduler.running)}, #queue-req: {len(scheduler.waiting)}, "
            f"#pending-token: {waiting}, {self._label}: False, "
            f"input throughput (token/s): {throughput:.2f}"
        )

    def decode(self, counters: Counters, *, speculating: bool) -> str:
        """Return the line of the last `--decode-log-interval` decode iterations."""
        scheduler = self._scheduler
        running = scheduler.running
        tokens = sum(r.prompt_tokens + r.completion_tokens for r in running)
        accept = (
            f"accept len: {counters.accept_length:.2f}, accept rate: {counters.accept_rate:.2f}, "
            if speculating
            else ""
        )
        return (
            f"Decode batch, #running-req: {len(running)}, #token: {tokens}, "
            f"token usage: {scheduler.token_usage:.2f}, {accept}{self._label}: {self._replays}, "
            f"gen throughput (token/s): {counters.gen_throughput:.2f}, "
            f"#queue-req: {len(scheduler.waiting)}"
        )


def uvicorn_log_config() -> dict[str, Any]:
    """Return the logging configuration of uvicorn with SGLang's format."""
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
