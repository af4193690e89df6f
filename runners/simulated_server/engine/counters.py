"""Counters, gauges and histograms of the scheduler."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from runners.simulated_server.engine.request import ABORT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine.request import Request


DECODE_LOG_INTERVAL = 40
"""Default of `--decode-log-interval`: decode iterations between two updates of the gauges."""

EXTEND = "extend"
DECODE = "decode"
TARGET_VERIFY = "target_verify"
DRAFT = "eagle_draft"
DRAFT_EXTEND = "eagle_draft_extend"
"""Categories of `sglang:forward_execution_seconds_total` in 0.5.23.

Sources: `decode_cuda_graph_runner`, `eagle_draft_cuda_graph_runner` and
`eagle_draft_extend_cuda_graph_runner`.
"""


@dataclass(slots=True)
class Window:
    """Sums over the decode iterations since the last update of the gauges."""

    iterations: int = 0
    tokens: int = 0
    accepted: int = 0
    correct: int = 0
    verify_calls: int = 0


@dataclass(slots=True)
class Counters:
    """Counters, by whether the request streamed, and gauges.

    The gauges of the accept length are 0 before their first update, and keep their value while the
    server is idle and after a flush. The average is absent before its first update and after a
    flush.
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
    """Device time of each category of forwards, in seconds of the server's clock."""

    def forward(self, category: str, seconds: float) -> None:
        """Count a forward as SGLang's device timer does."""
        if seconds > 0.0:
            self.forward_seconds[category] = self.forward_seconds.get(category, 0.0) + seconds

    def finished(self, request: Request) -> None:
        self.prompt_tokens[request.streaming] += request.prompt_tokens
        self.generation_tokens[request.streaming] += request.completion_tokens
        self.requests[request.streaming] += 1
        self.cached_tokens += request.cached_tokens
        self.verify_calls += request.verify_calls

    def tick(self, now: float, num_steps: int, num_draft_tokens: int, proposed: int) -> None:
        """Update the gauges from the window, and begin the next window.

        Args:
            now: Seconds of a monotonic clock.
            num_steps: Current draft steps.
            num_draft_tokens: Current tokens per verify.
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
        """`avg_spec_accept_length`; `None` without a verify since the flush."""
        if not self.total_verify_calls:
            return None
        return self.total_accepted / self.total_verify_calls

    def flushed(self) -> None:
        """Reset the values that `/flush_cache` resets; gauges stay (0.5.23, `reset_metrics`)."""
        self.total_accepted = self.total_verify_calls = 0
        self.window = Window()


class Histogram:
    """One series of a Prometheus histogram.

    Args:
        bounds: Upper bounds of the buckets; the last bound is infinite.
    """

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * len(bounds)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def cumulative(self) -> list[int]:
        return list(accumulate(self._counts))


class Observations:
    """Histograms of finished requests, by family and by whether the request streamed.

    Args:
        buckets: Upper bounds by family, as Prometheus writes them.
    """

    def __init__(self, buckets: dict[str, list[str]]) -> None:
        self._bounds = {name: [float(bound) for bound in found] for name, found in buckets.items()}
        self.series: dict[str, dict[str, Histogram]] = {}
        self.aborted = 0

    def finished(self, request: Request) -> None:
        """Record a request that has ended.

        SGLang fills `inter_token_latency_seconds` for each chunk. Here every token of a request
        counts with the request's mean.
        """
        streaming = str(request.streaming).lower()
        self._observe("prompt_tokens_histogram", "", request.prompt_tokens)
        uncached = request.prompt_tokens - request.cached_tokens
        self._observe("uncached_prompt_tokens_histogram", "", uncached)
        self._observe("generation_tokens_histogram", "", request.completion_tokens)
        latency = request.finished_at - request.received_at
        self._observe("e2e_request_latency_seconds", streaming, latency)
        if request.finish == ABORT:
            self.aborted += 1
        if not request.prefill_finished_at:
            return
        waited = max(0.0, request.forward_entry_at - request.received_at)
        self._observe("queue_time_seconds", "", waited)
        first = request.prefill_finished_at - request.received_at
        self._observe("time_to_first_token_seconds", streaming, first)
        more = request.completion_tokens - 1
        if more > 0:
            seconds = max(0.0, request.finished_at - request.prefill_finished_at) / more
            self._observe("inter_token_latency_seconds", "", seconds, more)
            if request.finish != ABORT:
                self._observe("request_time_per_output_token_seconds", streaming, seconds)

    def _observe(self, family: str, streaming: str, value: float, times: int = 1) -> None:
        series = self.series.setdefault(family, {})
        if streaming not in series:
            series[streaming] = Histogram(self._bounds[family])
        series[streaming].observe(value, times)
