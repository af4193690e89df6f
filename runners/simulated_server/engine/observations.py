"""What `/metrics` shows of finished requests as histograms."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from runners.simulated_server.engine.request import ABORT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine.request import Request


class Histogram:
    """One series.

    Args:
        bounds: Upper bounds of the buckets, the last of them infinite.
    """

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * len(bounds)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def cumulative(self) -> list[int]:
        """Counts up to each bound."""
        return list(accumulate(self._counts))


class Observations:
    """The histograms that requests fill, by family and by whether the request streamed.

    Args:
        buckets: Upper bounds by family, as Prometheus writes them.
    """

    def __init__(self, buckets: dict[str, list[str]]) -> None:
        self._bounds = {name: [float(bound) for bound in found] for name, found in buckets.items()}
        self.series: dict[str, dict[str, Histogram]] = {}
        self.aborted = 0

    def finished(self, request: Request) -> None:
        """Takes a request at its end.

        SGLang fills `inter_token_latency_seconds` chunk by chunk; here all of a request's tokens
        count at their mean.
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
