"""What must be known of a window's clock before its figures are believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.explain.mean_cycle import FORWARDS
from tuner.explain.part_names import part_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.records import BatchCycles, CycleTimes, Measurement
    from tuner.explain.mean_cycle import MeanCycle

EAGER = 0.95
"""Below this share of CUDA graphs a part is said to run without them."""

UNEVEN = 1.5
"""From this ratio of mean and median on some cycles are said to take far longer than others."""

_MATTERS = 0.1
"""Share of a cycle below which that is not worth a word."""

_DRAFT_IN_REST = (
    "the clock does not tell this draft apart (NGRAM's, DFLASH's, multi-layer EAGLE's): its time "
    "is in rest"
)


def point_notes(
    measurement: Measurement,
    times: CycleTimes,
    cycle: MeanCycle,
    *,
    speculates: bool,
    drafts: bool,
) -> tuple[str, ...]:
    """In sentences, the gravest first."""
    return (
        *(f"do not believe it: {reason}" for reason in measurement.invalid),
        *_of_source(times, cycle),
        *((_DRAFT_IN_REST,) if speculates and not drafts else ()),
        *_of_graphs(times, speculates=speculates),
        *_of_spread(times, cycle, speculates=speculates),
    )


def _of_source(times: CycleTimes, cycle: MeanCycle) -> Iterator[str]:
    if times.source == "device_timer" and not cycle.rest_known:
        yield (
            "SGLang's own device timer knows the GPU time of the forwards alone, per verify of a "
            "request: shares and bounds are of that time, and larger than those of whole cycles"
        )
    elif times.source == "device_timer":
        yield (
            "SGLang's own device timer knows the GPU time of the forwards; rest is wall time minus "
            "that, gaps between the forwards included"
        )
    elif not cycle.rest_known:
        yield "nothing is known of what lies between the forwards: rest is left out"


def _of_graphs(times: CycleTimes, *, speculates: bool) -> Iterator[str]:
    lowest: dict[str, float] = {}
    highest = 0.0
    for batch in times.batches:
        for name in FORWARDS:
            share = part.graph_share if (part := batch.parts.get(name)) is not None else None
            if share is not None:
                lowest[name] = min(share, lowest.get(name, 1.0))
                highest = max(highest, share)
    if lowest and not highest:
        yield "no forward ran as a CUDA graph"
        return
    eager = [part_name(n, speculates=speculates) for n, share in lowest.items() if share < EAGER]
    if eager:
        yield f"{' and '.join(eager)} did not always run as CUDA graphs"


def _of_spread(times: CycleTimes, cycle: MeanCycle, *, speculates: bool) -> Iterator[str]:
    """The shares are of means: a few long cycles shift them."""
    busiest = max(times.batches, key=_seconds)
    for name, part in busiest.parts.items():
        if not part.median_s or not part.count or cycle.shares[name] < _MATTERS:
            continue
        ratio = part.total_s / part.count / part.median_s
        if ratio >= UNEVEN:
            yield (
                f"the mean of {part_name(name, speculates=speculates)} is {ratio:.1f} times its "
                "median: some cycles took far longer, as where something else ran on the machine"
            )


def _seconds(batch: BatchCycles) -> float:
    return sum(part.total_s for part in batch.parts.values())
