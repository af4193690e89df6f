"""Counters of the scheduler, and the batch lines of the log.

The lines are those of SGLang 0.5.23 (`metrics_reporter.py`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runners.simulated_server.engine.request import Request
    from runners.simulated_server.engine.scheduler import Prefill, Scheduler


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


DECODE_LOG_INTERVAL = 40
"""Decode iterations between two looks at the gauges (`--decode-log-interval`'s default)."""

EXTEND = "extend"
DECODE = "decode"
TARGET_VERIFY = "target_verify"
DRAFT = "eagle_draft"
DRAFT_EXTEND = "eagle_draft_extend"
"""Categories of `sglang:forward_execution_seconds_total` in 0.5.23, by the runner that replays the
forward's graph: `decode_cuda_graph_runner`, `eagle_draft_cuda_graph_runner` and the latter's
`_extend_`."""


@dataclass(slots=True)
class Window:
    """Sums over the decode iterations since the last tick."""

    iterations: int = 0
    tokens: int = 0
    accepted: int = 0
    correct: int = 0
    verify_calls: int = 0


@dataclass(slots=True)
class Counters:
    """Counters (by whether the request streamed) and gauges.

    The accept length's gauges keep their last value when the server is idle and after a flush, and
    are 0 before the first tick; the average is absent before the first tick and after a flush.
    """

    prompt_tokens: Counter[bool] = field(default_factory=Counter)
    generation_tokens: Counter[bool] = field(default_factory=Counter)
    requests: Counter[bool] = field(default_factory=Counter)
    cached_tokens: int = 0
    verify_calls: int = 0
    gen_throughput: float = 0.0
    accept_length: float = 0.0
    accept_rate: float = 0.0
    shown_steps: int = 0
    shown_draft_tokens: int = 0
    window: Window = field(default_factory=Window)
    total_accepted: int = 0
    total_verify_calls: int = 0
    last_tick: float = 0.0
    forward_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of the device in each kind of forward, on the server's clock."""

    def forward(self, category: str, seconds: float) -> None:
        """Counts a forward as SGLang's device timer does; see `EXTEND` and its like."""
        if seconds > 0.0:
            self.forward_seconds[category] = self.forward_seconds.get(category, 0.0) + seconds

    def finished(self, request: Request) -> None:
        """Counts a request at its end, as SGLang does."""
        self.prompt_tokens[request.streaming] += request.prompt_tokens
        self.generation_tokens[request.streaming] += request.completion_tokens
        self.requests[request.streaming] += 1
        self.cached_tokens += request.cached_tokens
        self.verify_calls += request.verify_calls

    def tick(self, now: float, num_steps: int, num_draft_tokens: int, proposed: int) -> None:
        """Renews the gauges from the window, and begins another.

        Args:
            now: Seconds of a monotonic clock.
            num_steps: In force now.
            num_draft_tokens: In force now.
            proposed: Drafts per verify.
        """
        window = self.window
        self.gen_throughput = window.tokens / max(1e-9, now - self.last_tick)
        self.last_tick = now
        if window.verify_calls:
            self.accept_length = window.accepted / window.verify_calls
            self.accept_rate = window.correct / (window.verify_calls * max(1, proposed))
            self.total_accepted += window.accepted
            self.total_verify_calls += window.verify_calls
        self.shown_steps = num_steps
        self.shown_draft_tokens = num_draft_tokens
        self.window = Window()

    @property
    def average_accept_length(self) -> float | None:
        """`avg_spec_accept_length`; `None` while there is none."""
        if not self.total_verify_calls:
            return None
        return self.total_accepted / self.total_verify_calls

    def flushed(self) -> None:
        """What `/flush_cache` resets: the gauges stay (0.5.23, `reset_metrics`)."""
        self.total_accepted = self.total_verify_calls = 0
        self.window = Window()
