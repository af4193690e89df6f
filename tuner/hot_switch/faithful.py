"""Compare a switched server with a server that was launched for the same setting. Pure.

Accept length, the time of each part of a cycle, and its share of CUDA graphs must agree. In SGLang
0.5.17 a switched server ran draft extend without its CUDA graph, and its results looked plausible.

The time of a part is stream time, so it includes delays by the host. With a small model these
delays vary from launch to launch (`docs/hot-switch.md` has figures). The comparison therefore uses
the 5th percentile, in which the host is ahead of the device most often.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from results.records import BatchCycles, CycleTimes, Measurement, PartTime

VERIFY_TIME = 0.05
"""Relative tolerance of verify time, which is mostly one CUDA graph of the target. On one H200
(0.5.17) separate and switched launches agreed within 2 %, one step of the clock."""

DRAFT_TIME = 0.20
"""Relative tolerance of draft and draft extend time, which depend more on the host."""

FORWARDS_TIME = 0.05
"""Relative tolerance of the sum of the three parts, which decides small leads."""

LEAST_S = 20e-6
"""Differences below this are ignored. CUDA events resolve some microseconds, and a short part is
mostly the gap before its kernels."""

CYCLE_SHARE = 0.05
"""Tolerance of draft and draft extend time as a share of the cycle, if it is larger: the largest
effect on speed."""

CYCLE_TIME = 0.30
"""Relative tolerance of the median cycle time. At tp 2 on two H200 (0.5.17) a small model waited
for the host, and two launches of one setting differed by 22 %."""

SPEED = 0.20
"""Relative tolerance of tok/s without cycle times. Those two launches differed by 17 %."""

WITHOUT_GPU = 9.0
"""Relative tolerance of times without a GPU, because other processes share the cores. One setting
took 3.1 times as long as in the launch before, with the same accept length (0.5.23, two cores)."""

GRAPH_SHARE = 0.1
"""Absolute tolerance of the share of a part's runs that are CUDA graphs."""

ACCEPT_LENGTH = 0.02
"""Relative tolerance of accept length, unless the scatter between prompts explains more. Greedy
answers are equal if the numerics are; another order of a reduction changes single tokens."""

ACCEPT_LENGTH_AT_MOST = 0.05
"""Largest tolerance of accept length. A fault that affects only some prompts also makes them
scatter."""

_DEVIATIONS = 4.0
"""Tolerated standard errors of the paired difference of accept lengths between prompts."""

_LEAST_CYCLES = 20
"""Minimum number of cycles of a batch size in a window for a reliable median."""

_LEAST_SHARE = 0.1
"""Minimum share of a window's cycles. Rarer batch sizes are not compared."""

_NOTHING = 0.0005
"""Relative differences below this are shown as 0.0 %."""

_PARTS = ("draft", "draft_extend", "verify")


@dataclass(frozen=True, slots=True)
class Difference:
    """One compared quantity.

    Attributes:
        what: `"verify at batch 1"`, `"accept length"`, `"tok/s"`, ...
        point: Name of the operating point.
        separate: Value in the separate launch: seconds, tok/s, tokens per verify, or a share.
        switched: Value in the switched server.
        allowed: Allowed difference.
        absolute: Whether `allowed` is absolute, as for shares; otherwise it is relative.
    """

    what: str
    point: str
    separate: float
    switched: float
    allowed: float
    absolute: bool = False

    @property
    def size(self) -> float:
        """Relative difference, or the absolute one of shares."""
        if self.absolute:
            return self.switched - self.separate
        return self.switched / self.separate - 1 if self.separate else math.inf

    @property
    def holds(self) -> bool:
        """Whether the difference is small enough. A faster server is as wrong as a slower one."""
        size = self.size
        if self.absolute or self.allowed < 1:
            return abs(size) <= self.allowed
        return 1 / (1 + self.allowed) <= 1 + size <= 1 + self.allowed

    @property
    def is_none(self) -> bool:
        """Whether the difference is shown as 0.0 %."""
        return abs(self.size) < _NOTHING

    def __str__(self) -> str:
        """`"verify at batch 1 +0.4 %"`."""
        if self.absolute:
            return f"{self.what}: separate {self.separate:.0%}, switched {self.switched:.0%}"
        return f"{self.what} {100 * self.size:+.1f} %"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of one setting in a separate launch and in a switched server.

    Attributes:
        differences: The compared quantities.
        clock: Source of the cycle times; `None`: the two sides have no common clock, so only accept
            length and tok/s were compared.
        not_believed: Why the switched windows are not usable.
        unexplained: Difference of tok/s that cycle times and accept length do not explain. One of
            the windows was delayed, so the comparison is not valid.
    """

    differences: tuple[Difference, ...]
    clock: str | None
    not_believed: str | None = None
    unexplained: str | None = None

    @property
    def faithful(self) -> bool:
        """Whether the check passed, so that switched results count."""
        return self.not_believed is None and all(d.holds for d in self.differences)

    @property
    def worst(self) -> Difference | None:
        """The quantity closest to its limit, or farthest beyond it."""
        return max(self.differences, key=_strain, default=None)

    def __str__(self) -> str:
        """The result as one line."""
        if self.not_believed is not None:
            return self.not_believed
        broken = [d for d in self.differences if not d.holds]
        if broken:
            return "; ".join(
                f"{d} at {d.point} (allowed: {_percent(d.allowed)})"
                for d in sorted(broken, key=_strain, reverse=True)[:3]
            )
        without = "" if self.clock is not None else ", without cycle times"
        agree = f"{len(self.differences)} figures agree{without}"
        if all(d.is_none for d in self.differences):
            return f"{agree}, all equal"
        return f"{agree}; largest difference: {self.worst}"


def _strain(difference: Difference) -> float:
    size = abs(difference.size)
    if difference.allowed >= 1 and not difference.absolute:
        size = max(1 + difference.size, 1 / (1 + difference.size) if difference.size > -1 else 9e9)
        return (size - 1) / difference.allowed
    return size / difference.allowed


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def compare(
    separate: Sequence[Measurement], switched: Sequence[Measurement], *, on_gpu: bool
) -> Comparison:
    """Compare the windows of one setting.

    Args:
        separate: Windows of the separate launch, one per operating point, with their samples.
        switched: Windows of the switched server, at the same points in the same order.
        on_gpu: Whether a GPU runs the model. Without one, times have a wide tolerance.
    """
    reasons = [f"at {m.point.name}: {reason}" for m in switched for reason in m.invalid]
    if reasons:
        return Comparison((), None, f"invalid windows: {'; '.join(reasons)}")
    differences: list[Difference] = []
    unexplained: str | None = None
    clocks: set[str | None] = set()
    for ours, theirs in zip(separate, switched, strict=True):
        name = ours.point.name
        if ours.accept_length is not None and theirs.accept_length is not None:
            explained = _by_prompts(ours, theirs) / ours.accept_length
            allowed = min(max(ACCEPT_LENGTH, explained), ACCEPT_LENGTH_AT_MOST)
            differences.append(
                Difference("accept length", name, ours.accept_length, theirs.accept_length, allowed)
            )
        parts = list(_parts(ours.cycle, theirs.cycle, name, on_gpu=on_gpu))
        if not parts and _of_one_clock(ours.cycle, theirs.cycle):
            reason = (
                f"at {name} no batch size occurred often enough in both servers for a comparison"
            )
            return Comparison((), None, reason)
        if not parts:
            # The server's clock does not see a delayed client. Without such a clock only the
            # client's tok/s can be compared.
            speed = SPEED if on_gpu else WITHOUT_GPU
            differences.append(
                Difference("tok/s", name, ours.output_tok_s, theirs.output_tok_s, speed)
            )
        elif _beyond_clock(ours, theirs) > 1 + SPEED:
            unexplained = (
                f"{theirs.output_tok_s:.1f} tok/s at {name}, but {ours.output_tok_s:.1f} when "
                "launched separately, although cycle times and accept length agree"
            )
        differences += parts
        clocks.add(ours.cycle.source if parts and ours.cycle is not None else None)
    clock = clocks.pop() if len(clocks) == 1 else None
    found = Comparison(tuple(differences), clock)
    return replace(found, unexplained=unexplained) if found.faithful else found


def _beyond_clock(separate: Measurement, switched: Measurement) -> float:
    """Ratio of the tok/s after correction for cycle time and accept length; at least 1."""
    if separate.cycle is None or switched.cycle is None:
        return 1.0
    batch, other = max(common_batches(separate.cycle, switched.cycle), key=_fewest)
    if not (batch.cycle.count and other.cycle.count and separate.output_tok_s > 0):
        return 1.0
    ratio = switched.output_tok_s / separate.output_tok_s
    ratio *= typical_s(other.cycle) / typical_s(batch.cycle)
    ratio *= (separate.accept_length or 1.0) / (switched.accept_length or 1.0)
    return max(ratio, 1 / ratio) if ratio > 0 else math.inf


def _by_prompts(separate: Measurement, switched: Measurement) -> float:
    """Difference of accept lengths that the scatter between prompts explains.

    This is four standard errors of the paired difference; 0 if prompts are unknown or all agree.
    """
    sides = []
    for measurement in (separate, switched):
        totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for sample in measurement.samples:
            totals[sample.prompt][0] += sample.correct_drafts
            totals[sample.prompt][1] += sample.verify_calls
        sides.append({p: c / v for p, (c, v) in totals.items() if v})
    pairs = [sides[1][prompt] - sides[0][prompt] for prompt in sides[0].keys() & sides[1].keys()]
    if len(pairs) < 2:
        return 0.0
    return _DEVIATIONS * statistics.stdev(pairs) / math.sqrt(len(pairs))


def _parts(
    separate: CycleTimes | None, switched: CycleTimes | None, point: str, *, on_gpu: bool
) -> Iterator[Difference]:
    if separate is None or switched is None or not _of_one_clock(separate, switched):
        return
    for batch, other in common_batches(separate, switched):
        at = f" at batch {batch.size}" if batch.size else ""
        wall = CYCLE_TIME if on_gpu else WITHOUT_GPU
        if batch.cycle.count and other.cycle.count:
            yield Difference(
                f"cycle{at}", point, typical_s(batch.cycle), typical_s(other.cycle), wall
            )
        if on_gpu:
            yield from _together(batch, other, f"forwards{at}", point)
        for name in _PARTS:
            a, b = batch.parts.get(name), other.parts.get(name)
            if a is None or b is None or not a.count or not b.count:
                if (a is None or not a.count) != (b is None or not b.count):
                    # Only one side has this part, so compare its presence.
                    yield Difference(
                        f"{name}{at} in a cycle", point, float(bool(a and a.count)),
                        float(bool(b and b.count)), GRAPH_SHARE, absolute=True,
                    )  # fmt: skip
                continue
            allowed = _allowed(name, batch) if on_gpu else WITHOUT_GPU
            yield Difference(f"{name}{at}", point, *_pair(a, b), allowed)
            if a.graph_share is not None and b.graph_share is not None:
                yield Difference(
                    f"graphs of {name}{at}", point, a.graph_share, b.graph_share, GRAPH_SHARE,
                    absolute=True,
                )  # fmt: skip


def _of_one_clock(separate: CycleTimes | None, switched: CycleTimes | None) -> bool:
    return separate is not None and switched is not None and separate.source == switched.source


def _together(
    separate: BatchCycles, switched: BatchCycles, what: str, point: str
) -> Iterator[Difference]:
    """Compare the sum of draft, draft extend and verify over the parts that both sides have."""
    pairs = [
        _pair(part, switched.parts[name])
        for name, part in separate.parts.items()
        if name in _PARTS and part.count and name in switched.parts and switched.parts[name].count
    ]
    if len(pairs) > 1:
        ours, theirs = (sum(side) for side in zip(*pairs, strict=True))
        allowed = max(FORWARDS_TIME, LEAST_S / ours)
        yield Difference(what, point, ours, theirs, allowed)


def _allowed(name: str, batch: BatchCycles) -> float:
    """Relative tolerance of the time of a part on a GPU."""
    separate = fast_s(batch.parts[name])
    if name == "verify":
        return max(VERIFY_TIME, LEAST_S / separate)
    cycle = fast_s(batch.cycle) if batch.cycle.count else 0.0
    return max(DRAFT_TIME, max(LEAST_S, CYCLE_SHARE * cycle) / separate)


def common_batches(one: CycleTimes, other: CycleTimes) -> list[tuple[BatchCycles, BatchCycles]]:
    """Pairs of batches of equal size that occurred often enough in both windows.

    With an open loop batches have many sizes and none may occur often. The result is then the most
    frequent common size.
    """
    theirs = {batch.size: batch for batch in other.batches}
    pairs = [(batch, theirs[batch.size]) for batch in one.batches if batch.size in theirs]
    least = [_LEAST_SHARE * sum(map(_count, times.batches)) for times in (one, other)]
    met = [pair for pair in pairs if _fewest(pair) >= _LEAST_CYCLES]
    often = [(a, b) for a, b in met if _count(a) >= least[0] and _count(b) >= least[1]]
    return often or sorted(met, key=_fewest)[-1:]


def _fewest(pair: tuple[BatchCycles, BatchCycles]) -> int:
    return min(map(_count, pair))


def _count(batch: BatchCycles) -> int:
    return max([batch.cycle.count, *(part.count for part in batch.parts.values())])


def typical_s(part: PartTime) -> float:
    """Median seconds of one run of a part; the mean if only a total is known."""
    return part.median_s if part.median_s is not None else part.total_s / part.count


def fast_s(part: PartTime) -> float:
    """5th percentile of the seconds of one run of a part, without delays by the host, if known."""
    return part.p05_s if part.p05_s is not None else typical_s(part)


def _pair(separate: PartTime, switched: PartTime) -> tuple[float, float]:
    """The compared seconds of both sides: 5th percentiles if both have them, else medians."""
    known = separate.p05_s is not None and switched.p05_s is not None
    return (
        (fast_s(separate), fast_s(switched))
        if known
        else (typical_s(separate), typical_s(switched))
    )
