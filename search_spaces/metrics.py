"""Metrics of a measurement that can rank configurations."""

from __future__ import annotations

from dataclasses import dataclass

RATES = ("output_tok_s", "goodput_request_s", "request_s")
"""Rates that an objective can maximize, by their names in `Measurement`."""

LATENCIES = tuple(
    f"{what}_{percentile}_ms"
    for what in ("ttft", "tpot", "e2e")
    for percentile in ("p50", "p95", "p99")
)
"""Latencies that an objective can limit or minimize, in milliseconds of server time."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The metric that a study optimizes.

    Attributes:
        name: Its name in `Measurement`.
        larger_is_better: Whether it is maximized.
    """

    name: str = "output_tok_s"
    larger_is_better: bool = True


OUTPUT_TOK_S = Metric()
"""The default metric."""
