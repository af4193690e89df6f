"""Figures of a measurement by which configurations can be ranked."""

from __future__ import annotations

from dataclasses import dataclass

RATES = ("output_tok_s", "goodput_request_s", "request_s")
"""What an objective may maximize: the names of `Measurement`'s figures, per second."""

LATENCIES = tuple(
    f"{what}_{percentile}_ms"
    for what in ("ttft", "tpot", "e2e")
    for percentile in ("p50", "p95", "p99")
)
"""What an objective may limit or minimize, in milliseconds of the server's own time."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What a study is about.

    Attributes:
        name: The figure's name in `Measurement`.
        larger_is_better: Whether it is maximized.
    """

    name: str = "output_tok_s"
    larger_is_better: bool = True


OUTPUT_TOK_S = Figure()
"""What a study is about that says nothing else."""
