"""The story's machine with a clock, and studies that are replayed on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import BatchCycles, CycleTimes, PartTime

from .replays import Odd, play

if TYPE_CHECKING:
    from results.records import Measurement
    from search_spaces.configuration import Configuration

AT_LEAST = (0.27, 0.257, 0.21, 0.192, 0.171, 0.138, 0.111)
"""P(at least j drafts are correct), j = 1, ...; as in the simulated server's profile `kimi`."""

DECODE_MS = 11.0


def part(ms: float, count: int = 100, graph_share: float | None = 1.0) -> PartTime:
    """A part that always takes as long."""
    return PartTime(
        count,
        count * ms / 1000,
        median_s=ms / 1000,
        p95_s=1.1 * ms / 1000,
        graph_share=graph_share,
    )


def batch(size: int = 1, count: int = 100, **ms: float) -> BatchCycles:
    """Cycles of one batch size from milliseconds per part."""
    parts = {name: part(value, count) for name, value in ms.items()}
    return BatchCycles(size, part(sum(ms.values()), count), parts)


def plugin(*batches: BatchCycles) -> CycleTimes:
    return CycleTimes("plugin", batches)


def kimi_ms(configuration: Configuration) -> dict[str, float]:
    """Milliseconds per part, as the profile `kimi` has them."""
    steps = configuration.speculation.num_steps
    tuned = dict(configuration.env).get("NCCL_PROTO") is not None
    if steps is None:
        return {"verify": DECODE_MS - (0.1 if tuned else 0.0), "rest": 0.01}
    verify = 13.778 + 2.369 * (steps + 1) - (5.642 if tuned else 0.0)
    return {"draft": 0.125 * steps, "draft_extend": 0.36, "verify": verify, "rest": 0.2}


def accept_length(steps: int) -> float:
    return 1 + sum(AT_LEAST[:steps])


def histogram(steps: int) -> tuple[int, ...]:
    """Of 1000 verifies."""
    at_least = (1.0, *AT_LEAST[:steps], 0.0)
    return tuple(round(1000 * (at_least[k] - at_least[k + 1])) for k in range(steps + 1))


def timed(configuration: Configuration, measurement: Measurement) -> Measurement:
    """A measurement as that machine gives it."""
    ms = kimi_ms(configuration)
    steps = configuration.speculation.num_steps
    accept = accept_length(steps) if steps is not None else None
    size = measurement.point.concurrency or 1
    return replace(
        measurement,
        accept_length=accept,
        histogram=histogram(steps) if steps is not None else (),
        output_tok_s=size * 1000 * (accept or 1.0) / sum(ms.values()),
        cycle=plugin(batch(size, **ms)),
    )


class Timed(Odd):
    """A replay with the story's figures; its studies can be reopened as simulated ones."""

    name = "simulated"

    def __init__(self, study, bend=timed, **options) -> None:
        super().__init__(study, bend, **options)


def replayed(study, store, bend=timed, **options):
    """A finished study on that machine; returns its report."""
    return play(study, store, Timed(study, bend), **options)
