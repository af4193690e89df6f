"""The log's lines of batches, in SGLang's words (0.5.23, `metrics_reporter.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runners.simulated_server.counters import Counters
    from runners.simulated_server.scheduler import Prefill, Scheduler


class BatchLog:
    """Writes them.

    Args:
        flags: The server's, by destination.
        scheduler: Whose batches they are.
    """

    def __init__(self, flags: Mapping[str, Any], scheduler: Scheduler) -> None:
        cpu = flags.get("device") == "cpu"
        self._label = "cpu graph" if cpu else "cuda graph"
        self._replays = not (cpu or flags.get("disable_cuda_graph"))
        self._scheduler = scheduler
        self._last_prefill = 0.0

    def prefill(self, prefill: Prefill, now: float) -> str:
        """The line of a prefill that begins; its graph is off, as the start-up said.

        Args:
            prefill: It.
            now: Seconds of a monotonic clock.
        """
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
        """The line of every so many decode iterations."""
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
