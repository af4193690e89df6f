"""Mean cycle of a window: the time of each part, and the names of the parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.records import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from results.records import BatchCycles, CycleTimes


FORWARDS = ("draft", "draft_extend", "verify")
"""Parts that run a model."""


@dataclass(frozen=True, slots=True)
class MeanCycle:
    """Mean of several cycles.

    Attributes:
        count: Number of cycles, above 0.
        parts: Seconds of each of `PARTS`, 0 for a part that never ran; their sum is above 0.
        rest_known: Whether the time between forwards was measured.
    """

    count: int
    parts: Mapping[str, float]
    rest_known: bool = True

    @property
    def total_s(self) -> float:
        """Seconds of the whole cycle."""
        return sum(self.parts.values())

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part; the shares sum to 1."""
        total = self.total_s
        return {name: seconds / total for name, seconds in self.parts.items()}

    def share(self, parts: Iterable[str]) -> float:
        """Sum of the shares of several parts, at most 1."""
        wanted = set(parts)
        return min(1.0, sum(share for name, share in self.shares.items() if name in wanted))

    @property
    def dominant(self) -> str:
        """The longest part."""
        return max(self.parts, key=lambda name: self.parts[name])


def mean_cycles(times: CycleTimes) -> dict[int, MeanCycle]:
    """Mean cycle of each batch size with cycles."""
    return {b.size: cycle for b in times.batches if (cycle := _of_batch(b)) is not None}


def mean_cycle(times: CycleTimes) -> MeanCycle | None:
    """Mean of all cycles of a window; `None` without cycles."""
    return mean_of(mean_cycles(times).values())


def mean_of(cycles: Iterable[MeanCycle]) -> MeanCycle | None:
    """Weighted mean of several mean cycles; `None` without cycles.

    If the time between forwards is unknown for some cycles, the mean of the others is used.
    """
    met = list(cycles)
    if not met:
        return None
    count = sum(cycle.count for cycle in met)
    parts = {
        name: sum(cycle.parts[name] * cycle.count for cycle in met) / count for name in FORWARDS
    }
    between = [cycle for cycle in met if cycle.rest_known]
    seen = sum(cycle.count for cycle in between)
    rest = sum(cycle.parts["rest"] * cycle.count for cycle in between) / seen if seen else 0.0
    return MeanCycle(count, {**parts, "rest": rest}, rest_known=bool(between))


def _of_batch(batch: BatchCycles) -> MeanCycle | None:
    """Mean cycle of one batch size.

    A cycle has one verify; other forwards may be missing in some cycles (adaptive steps). Time
    between forwards is measured only in cycles that follow each other without a prefill.
    """
    verify = batch.parts.get("verify")
    count = verify.count if verify is not None else 0
    count = count or max((part.count for part in batch.parts.values()), default=0)
    if count <= 0:
        return None
    parts = dict.fromkeys(PARTS, 0.0)
    for name in FORWARDS:
        if (part := batch.parts.get(name)) is not None:
            parts[name] = max(0.0, part.total_s) / count
    rest = batch.parts.get("rest")
    if rest is not None and rest.count > 0:
        parts["rest"] = max(0.0, rest.total_s) / rest.count
    else:
        rest = None
    cycle = MeanCycle(count, parts, rest_known=rest is not None)
    return cycle if cycle.total_s > 0 else None


_NAMES = {
    "draft": "draft",
    "draft_extend": "draft extend",
    "verify": "verify",
    "rest": "rest",
}
_DECODING = {"verify": "decode forward"}


def part_name(name: str, *, speculates: bool = True) -> str:
    """Name of a part: `"draft extend"`. Without speculation verify is a decode forward."""
    return _NAMES[name] if speculates else _DECODING.get(name, _NAMES[name])
