"""Times of the cycles of a window."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

PARTS = ("draft", "draft_extend", "verify", "rest")
"""A whole cycle, without overlap. Without speculation: `verify` (the decode forward) and `rest`."""

CycleSource = Literal["plugin", "device_timer"]


@dataclass(frozen=True, slots=True)
class PartTime:
    """One part of the cycles of one batch size.

    Attributes:
        count: Number of cycles with this part. For the device timer, which does not count: number
            of verifies (tokens without speculation), summed over requests.
        total_s: Sum of seconds.
        median_s: Median; `None` if only totals are known (SGLang's device timer).
        p05_s: 5th percentile, mostly free of gaps of the host; `None` like the median.
        p95_s: 95th percentile; `None` like the median.
        graph_share: Share of runs as a CUDA graph; `None` if unknown.
    """

    count: int
    total_s: float
    median_s: float | None = None
    p05_s: float | None = None
    p95_s: float | None = None
    graph_share: float | None = None


@dataclass(frozen=True, slots=True)
class BatchCycles:
    """Cycles of one batch size.

    Attributes:
        size: Requests that ran together; 0 if the source does not separate batch sizes.
        cycle: Time from the start of a cycle to the start of the next, without a prefill between.
        parts: Times by part (`PARTS`), without parts that never ran.
    """

    size: int
    cycle: PartTime
    parts: dict[str, PartTime]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `asdict`."""
        parts = {name: PartTime(**part) for name, part in data["parts"].items()}
        return cls(data["size"], PartTime(**data["cycle"]), parts)


@dataclass(frozen=True, slots=True)
class CycleTimes:
    """Cycle times of one window, from the start of its ramp to the end of its drain.

    The server is idle at both reads, so warm-up is not included. Incomplete batches mostly have
    smaller sizes. With data parallelism the times are those of the first replica.

    Attributes:
        source: The tuner's plugin in SGLang (each cycle, with time between forwards), or SGLang's
            device timer (totals of GPU time).
        batches: By batch size, ascending.
    """

    source: CycleSource
    batches: tuple[BatchCycles, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON for database and output."""
        return {"source": self.source, "batches": [asdict(batch) for batch in self.batches]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(data["source"], tuple(BatchCycles.from_dict(b) for b in data["batches"]))
