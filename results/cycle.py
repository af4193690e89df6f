"""Where the time of a window's cycles went."""

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
        count: How many cycles had it; of the device timer, which counts none, how many verifies
            (tokens without speculation) the requests account for, each request's own.
        total_s: Their sum.
        median_s: `None` where only totals are known (SGLang's device timer).
        p05_s: 5th percentile, which the host's gaps are mostly out of; `None` likewise.
        p95_s: 95th percentile; `None` likewise.
        graph_share: How often it ran as a CUDA graph, of 1; `None` where nobody says.
    """

    count: int
    total_s: float
    median_s: float | None = None
    p05_s: float | None = None
    p95_s: float | None = None
    graph_share: float | None = None


@dataclass(frozen=True, slots=True)
class BatchCycles:
    """The cycles of one batch size.

    Attributes:
        size: Requests that ran together; 0 where the source does not tell batches apart.
        cycle: From a cycle's start to the next one's, where nothing else ran between.
        parts: By name (`PARTS`); a part that never ran is missing.
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
    """The clock of one window, from the beginning of its ramp to the end of its drain.

    Both are read while the server idles, so the warm-up is out; what is not a full batch yet, or
    any more, is mostly told by its smaller size. With data parallelism it is the first replica's.

    Attributes:
        source: Who measured: our plugin inside SGLang (per cycle, with what lies between the
            forwards), SGLang's own device timer (totals of GPU time).
        batches: By batch size, ascending.
    """

    source: CycleSource
    batches: tuple[BatchCycles, ...]

    def to_dict(self) -> dict[str, Any]:
        """As it is stored, and shown as JSON."""
        return {"source": self.source, "batches": [asdict(batch) for batch in self.batches]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(data["source"], tuple(BatchCycles.from_dict(b) for b in data["batches"]))
