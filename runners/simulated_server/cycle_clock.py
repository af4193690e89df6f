"""The cycle's clock, as the tuner's plugin inside SGLang keeps it.

All that it counts is on the server's own clock, as everything that the server tells of time: at
ten times life's speed a cycle of 20 ms is 2 ms long.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runners.plugin_protocol import CYCLE, bucket_of

if TYPE_CHECKING:
    from runners.simulated_server.cost import CycleTime


@dataclass(slots=True)
class _Part:
    count: int = 0
    total_s: float = 0.0
    graphs: int = 0
    buckets: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float, *, graph: bool) -> None:
        self.count += 1
        self.total_s += seconds
        self.graphs += graph
        self.buckets[bucket_of(seconds)] += 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "total_s": self.total_s,
            "graphs": self.graphs,
            "buckets": {str(bucket): self.buckets[bucket] for bucket in sorted(self.buckets)},
        }


class CycleClock:
    """Counts since the start of the server.

    Args:
        drafts: Whether drafts are told apart: of other workers than EAGLE's they are in the rest.
    """

    def __init__(self, *, drafts: bool) -> None:
        self._measured = ("draft", "draft_extend", "verify") if drafts else ("verify",)
        self._batches: dict[int, dict[str, _Part]] = {}
        self._last: tuple[int, CycleTime, float] | None = None

    def cycle(
        self, size: int, time: CycleTime, seconds_per_ms: float, graphs: frozenset[str]
    ) -> None:
        """Counts the parts of a cycle, and the whole of the one before it if none lay between.

        Args:
            size: Requests of the batch.
            time: The cycle's times, noise aside.
            seconds_per_ms: What a millisecond of them took on the server's clock.
            graphs: The parts that ran as CUDA graphs.
        """
        self._close()
        self._last = (size, time, seconds_per_ms)
        for name, ms in self._parts(time).items():
            if ms > 0.0:
                self._part(size, name).add(ms * seconds_per_ms, graph=name in graphs)

    def interrupted(self) -> None:
        """Something else than a cycle comes next: what the last one took in all is not known."""
        self._last = None

    def to_dict(self) -> dict[str, Any]:
        """As in the plugin's status."""
        batches = {
            str(size): {name: part.to_dict() for name, part in parts.items()}
            for size, parts in sorted(self._batches.items())
        }
        return {"running": True, "failed": None, "parts": list(self._measured), "batches": batches}

    def _close(self) -> None:
        if self._last is None:
            return
        size, time, seconds_per_ms = self._last
        self._part(size, CYCLE).add(time.total_ms * seconds_per_ms, graph=False)
        rest_ms = time.total_ms - sum(self._parts(time).values())
        self._part(size, "rest").add(rest_ms * seconds_per_ms, graph=False)

    def _parts(self, time: CycleTime) -> dict[str, float]:
        forwards = {
            "draft": time.draft_ms,
            "draft_extend": time.draft_extend_ms,
            "verify": time.verify_ms,
        }
        return {name: forwards[name] for name in self._measured}

    def _part(self, size: int, name: str) -> _Part:
        return self._batches.setdefault(size, {}).setdefault(name, _Part())
