"""Student's t: quantiles, and the interval of a mean of few values."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def mean_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """Return the two limits of Student's interval around the mean of at least two values."""
    mean = statistics.fmean(values)
    quantile = t_quantile(1 - (1 - level) / 2, len(values) - 1)
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def t_quantile(probability: float, df: int) -> float:
    """Find Student's quantile by bisection; `probability` lies in [0.5, 1)."""
    low, high = 0.0, 1.0
    while _t_below(high, df) < probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _t_below(middle, df) < probability:
            low = middle
        else:
            high = middle
    return high


def _t_below(t: float, df: int) -> float:
    """P(T <= t) for t >= 0: finite sums for integer degrees of freedom (Abramowitz 26.7.3-4)."""
    angle = math.atan2(t, math.sqrt(df))
    cosine, sine = math.cos(angle), math.sin(angle)
    term = cosine if df % 2 else 1.0
    total = 0.0 if df == 1 else term
    for step in range(3 if df % 2 else 2, df - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    inside = 2 / math.pi * (angle + sine * total) if df % 2 else sine * total
    return 0.5 + inside / 2
