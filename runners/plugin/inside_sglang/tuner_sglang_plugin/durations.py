"""Durations by part of the cycle in buckets, so that two readings can be subtracted."""

from __future__ import annotations

import math
from typing import Any

GROWTH = 1.02
"""Each bucket ends 2 % above its beginning: a median read from buckets is 1 % off at most."""

LEAST_S = 1e-6
"""Where bucket 0 begins; what is shorter is in it."""

_PER_BUCKET = 1 / math.log(GROWTH)


def bucket_of(seconds: float) -> int:
    """Bucket `i` holds durations in `[1e-6 * 1.02**i, 1e-6 * 1.02**(i + 1))` seconds."""
    return int(math.log(seconds / LEAST_S) * _PER_BUCKET) if seconds > LEAST_S else 0


class Durations:
    """Durations of one part since the start."""

    __slots__ = ("buckets", "count", "graphs", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.graphs = 0
        self.buckets: dict[int, int] = {}

    def add(self, seconds: float, *, graph: bool = False) -> None:
        """Count one duration."""
        self.count += 1
        self.total_s += seconds
        self.graphs += graph
        bucket = bucket_of(seconds)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def to_dict(self) -> dict[str, Any]:
        """JSON for `/server_info`."""
        return {
            "count": self.count,
            "total_s": self.total_s,
            "graphs": self.graphs,
            "buckets": {str(bucket): n for bucket, n in sorted(self.buckets.items())},
        }
