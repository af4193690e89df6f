"""Whether a switched server behaves as one that was launched for the same setting. Pure.

The same setting is measured in a launch of its own and in a server that was switched to it. What a
request gets out of a verify (accept length) has to agree, and so has what each part of a cycle
takes, and whether it ran as a CUDA graph: in 0.5.17 a switched state ran its draft extend without
its graph, and the figures looked entirely plausible.

A part is time on the stream: the host's work and gaps within it are in it, and where the host is
what a small model waits for they wander as wall time does (`docs/hot-switch.md` has figures). So
the 5th percentile is compared, in which the host is ahead of the device if it ever is.
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
"""How far verify may be apart, of 1: mostly one graph of the target's. On one H200 (0.5.17) it was
equal within 2 %, one step of the clock, from launch to launch and switched."""

DRAFT_TIME = 0.20
"""The same of draft and draft extend, which are more of the host's work."""

FORWARDS_TIME = 0.05
"""The same of the three together, of which a wrong winner would be made."""

LEAST_S = 20e-6
"""A difference that is never held against a part: CUDA events are no finer than some microseconds,
and a short part is mostly the gap before its kernels."""

CYCLE_SHARE = 0.05
"""How far draft or draft extend may be apart, of the cycle, where that is more: so much it can move
the speed at most."""

CYCLE_TIME = 0.30
"""How far the median of a whole cycle may be apart. At tp 2 on two H200 (0.5.17), where a small
model waits for the host, it was by 22 % in two launches of one setting."""

SPEED = 0.20
"""How far tok/s may be apart where no clock is known. In those two launches it was by 17 %."""

WITHOUT_GPU = 9.0
"""How far any time may be apart where no GPU runs: cores are shared with whatever else the machine
does. Beside other work on two cores the same setting was seen to take 3.1 times as long as in the
launch before, with the same accept length (0.5.23)."""

GRAPH_SHARE = 0.1
"""How far the shares of a part's runs that were CUDA graphs may be apart."""

ACCEPT_LENGTH = 0.02
"""How far accept lengths may be apart where prompts alone do not explain it. Greedy answers are
equal where the numerics are; another order of a reduction turns a token of some prompt."""

ACCEPT_LENGTH_AT_MOST = 0.05
"""How far they may be apart whatever the prompts explain: a fault that only some prompts meet makes
them scatter, too."""

_DEVIATIONS = 4.0
"""Standard errors of the paired difference of the prompts' accept lengths."""

_LEAST_CYCLES = 20
"""Of a batch size in a window, below which its median says little."""

_LEAST_SHARE = 0.1
"""Of a window's cycles: batch sizes that were met in passing are not compared beside others."""

_NOTHING = 0.0005
"""A difference, of 1, that is shown as 0.0 %."""

_PARTS = ("draft", "draft_extend", "verify")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that was compared.

    Attributes:
        what: `"verify at batch 1"`, `"accept length"`, `"tok/s"`, ...
        point: Name of the operating point.
        own: In the launch of its own: seconds, tok/s, tokens per verify or a share.
        switched: In the switched server.
        allowed: Relative difference that is allowed (of `graph` an absolute one).
    """

    what: str
    point: str
    own: float
    switched: float
    allowed: float
    absolute: bool = False

    @property
    def size(self) -> float:
        """Relative difference; absolute of shares."""
        if self.absolute:
            return self.switched - self.own
        return self.switched / self.own - 1 if self.own else math.inf

    @property
    def holds(self) -> bool:
        """Whether it is small enough; a faster one is as wrong as a slower one."""
        size = self.size
        if self.absolute or self.allowed < 1:
            return abs(size) <= self.allowed
        return 1 / (1 + self.allowed) <= 1 + size <= 1 + self.allowed

    @property
    def is_none(self) -> bool:
        """Whether it would be told as none."""
        return abs(self.size) < _NOTHING

    def __str__(self) -> str:
        """`"verify at batch 1 +0.4 %"`."""
        if self.absolute:
            return f"{self.what}: separate {self.own:.0%}, switched {self.switched:.0%}"
        return f"{self.what} {100 * self.size:+.1f} %"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A setting in a launch of its own beside the same in a switched server.

    Attributes:
        differences: All that could be compared.
        clock: Who measured the parts of the cycles; `None`: nobody did on both sides, so that only
            accept length and tok/s were compared.
        not_believed: Why the switched windows are no evidence of anything.
        unexplained: Where tok/s differ although clock and acceptance agree, in words: something
            held one of the two windows up, so neither is evidence of the other.
    """

    differences: tuple[Difference, ...]
    clock: str | None
    not_believed: str | None = None
    unexplained: str | None = None

    @property
    def faithful(self) -> bool:
        """Whether switched figures may be scored."""
        return self.not_believed is None and all(d.holds for d in self.differences)

    @property
    def worst(self) -> Difference | None:
        """What comes closest to its limit, or is farthest beyond."""
        return max(self.differences, key=_strain, default=None)

    def __str__(self) -> str:
        """What was found, for a line."""
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
    own: Sequence[Measurement], switched: Sequence[Measurement], *, on_gpu: bool
) -> Comparison:
    """Compares one setting's windows.

    Args:
        own: From the launch of its own, one per operating point, with samples where there are any.
        switched: From the server that was switched, at the same points in the same order.
        on_gpu: Whether GPUs do the work, so that times mean something.
    """
    reasons = [f"at {m.point.name}: {reason}" for m in switched for reason in m.invalid]
    if reasons:
        return Comparison((), None, f"invalid windows: {'; '.join(reasons)}")
    differences: list[Difference] = []
    unexplained: str | None = None
    clocks: set[str | None] = set()
    for ours, theirs in zip(own, switched, strict=True):
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
            # The server's own clock knows nothing of a client that was held up; where there is
            # none, what the client saw has to do.
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


def _beyond_clock(own: Measurement, switched: Measurement) -> float:
    """How many times tok/s are apart beyond what cycles and acceptance explain."""
    if own.cycle is None or switched.cycle is None:
        return 1.0
    batch, other = max(in_common(own.cycle, switched.cycle), key=_fewest)
    if not (batch.cycle.count and other.cycle.count and own.output_tok_s > 0):
        return 1.0
    ratio = switched.output_tok_s / own.output_tok_s
    ratio *= usual_of(other.cycle) / usual_of(batch.cycle)
    ratio *= (own.accept_length or 1.0) / (switched.accept_length or 1.0)
    return max(ratio, 1 / ratio) if ratio > 0 else math.inf


def _by_prompts(own: Measurement, switched: Measurement) -> float:
    """By how much accept lengths may differ by the chance of each prompt (where drafts are drawn).

    Four standard errors of the paired difference; 0 where prompts are not known, or all equal.
    """
    sides = []
    for measurement in (own, switched):
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
    own: CycleTimes | None, switched: CycleTimes | None, point: str, *, on_gpu: bool
) -> Iterator[Difference]:
    if own is None or switched is None or not _of_one_clock(own, switched):
        return
    for batch, other in in_common(own, switched):
        at = f" at batch {batch.size}" if batch.size else ""
        wall = CYCLE_TIME if on_gpu else WITHOUT_GPU
        if batch.cycle.count and other.cycle.count:
            yield Difference(
                f"cycle{at}", point, usual_of(batch.cycle), usual_of(other.cycle), wall
            )
        if on_gpu:
            yield from _together(batch, other, f"forwards{at}", point)
        for name in _PARTS:
            a, b = batch.parts.get(name), other.parts.get(name)
            if a is None or b is None or not a.count or not b.count:
                if (a is None or not a.count) != (b is None or not b.count):
                    # A part that only one of them has, by its share of the cycles.
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


def _of_one_clock(own: CycleTimes | None, switched: CycleTimes | None) -> bool:
    return own is not None and switched is not None and own.source == switched.source


def _together(
    own: BatchCycles, switched: BatchCycles, what: str, point: str
) -> Iterator[Difference]:
    """Draft, draft extend and verify as one, where both have the same of them."""
    pairs = [
        _pair(part, switched.parts[name])
        for name, part in own.parts.items()
        if name in _PARTS and part.count and name in switched.parts and switched.parts[name].count
    ]
    if len(pairs) > 1:
        ours, theirs = (sum(side) for side in zip(*pairs, strict=True))
        allowed = max(FORWARDS_TIME, LEAST_S / ours)
        yield Difference(what, point, ours, theirs, allowed)


def _allowed(name: str, batch: BatchCycles) -> float:
    """How far a part may be apart where GPUs do the work, of its time in a launch of its own."""
    own = low_of(batch.parts[name])
    if name == "verify":
        return max(VERIFY_TIME, LEAST_S / own)
    cycle = low_of(batch.cycle) if batch.cycle.count else 0.0
    return max(DRAFT_TIME, max(LEAST_S, CYCLE_SHARE * cycle) / own)


def in_common(one: CycleTimes, other: CycleTimes) -> list[tuple[BatchCycles, BatchCycles]]:
    """The batch sizes that two windows met often enough to be compared, from both.

    Where requests arrive as they like, batches have many sizes and none is met often: then it is
    the one that both met most.
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


def usual_of(part: PartTime) -> float:
    """Seconds of one: the median, the mean where only a total is known."""
    return part.median_s if part.median_s is not None else part.total_s / part.count


def low_of(part: PartTime) -> float:
    """The same with the host ahead: the 5th percentile, where it is known."""
    return part.p05_s if part.p05_s is not None else usual_of(part)


def _pair(own: PartTime, switched: PartTime) -> tuple[float, float]:
    """What is compared of a part."""
    known = own.p05_s is not None and switched.p05_s is not None
    return (low_of(own), low_of(switched)) if known else (usual_of(own), usual_of(switched))
