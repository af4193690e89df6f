"""From the requests of a window to a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from results.records import Measurement, RequestSample
from runners.load.acceptance import accept_length
from runners.load.answer import Answer
from runners.load.digest import fingerprint
from runners.load.validity import reasons_against

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runners.load.flight import Flight
    from runners.load.prompts import Prompt
    from search_spaces.configuration import Speculation
    from search_spaces.workload import OperatingPoint, Workload


@dataclass(frozen=True, slots=True)
class Window:
    """What a closed loop saw, in real time.

    Attributes:
        started_at: Seconds since the epoch at which the window opened.
        opened: The clock at the first send.
        closed: The clock when the first worker found no more work.
        tokens: Output tokens that arrived between the two.
        flights: All its requests, drained ones included, in the order of sending.
    """

    started_at: float
    opened: float
    closed: float
    tokens: int
    flights: tuple[Flight, ...]


def measurement_of(
    window: Window,
    prompts: Sequence[Prompt],
    *,
    workload: Workload,
    point: OperatingPoint,
    speculation: Speculation,
    time_scale: float,
    simulated: bool,
) -> Measurement:
    """Turns a window into a record, in the server's own time.

    Percentiles interpolate linearly, over successful requests; they are 0 where there is none
    (such a window is invalid).
    """
    samples = tuple(_sample(flight, window.opened, time_scale) for flight in window.flights)
    good = [sample for sample in samples if sample.error is None]
    window_s = (window.closed - window.opened) * time_scale
    ttft = [sample.ttft_s for sample in good]
    e2e = [sample.e2e_s for sample in good]
    tpot = [
        (sample.e2e_s - sample.ttft_s) / (sample.completion_tokens - 1)
        for sample in good
        if sample.completion_tokens > 1
    ]
    verify_calls = sum(sample.verify_calls for sample in good)
    length = accept_length(verify_calls, sum(sample.correct_drafts for sample in good))
    return Measurement(
        point=point,
        started_at=window.started_at,
        window_s=window_s,
        requests=len(good),
        failed_requests=len(samples) - len(good),
        output_tokens=window.tokens,
        output_tok_s=window.tokens / window_s if window_s > 0 else 0.0,
        accept_length=length if speculation.enabled else None,
        ttft_p50_ms=1000 * percentile(ttft, 50),
        ttft_p95_ms=1000 * percentile(ttft, 95),
        tpot_p50_ms=1000 * percentile(tpot, 50),
        tpot_p95_ms=1000 * percentile(tpot, 95),
        e2e_p50_ms=1000 * percentile(e2e, 50),
        e2e_p95_ms=1000 * percentile(e2e, 95),
        prompt_tokens=sum(sample.prompt_tokens for sample in good),
        cached_tokens=sum(sample.cached_tokens for sample in good),
        histogram=_sum_of(sample.histogram for sample in good),
        workload_fingerprint=fingerprint(prompts, workload),
        simulated=simulated,
        invalid=reasons_against(
            samples,
            prompts,
            concurrency=point.concurrency or 1,
            output_tokens=workload.output_tokens,
            window_tokens=window.tokens,
            speculation=speculation,
        ),
        samples=samples,
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile with linear interpolation between order statistics; 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _sample(flight: Flight, opened: float, time_scale: float) -> RequestSample:
    answer = flight.answer or Answer()
    return RequestSample(
        prompt=flight.prompt,
        sent_s=(flight.sent - opened) * time_scale,
        ttft_s=(flight.first - flight.sent) * time_scale,
        e2e_s=(flight.last - flight.sent) * time_scale,
        prompt_tokens=answer.prompt_tokens or 0,
        completion_tokens=answer.completion_tokens or flight.tokens,
        cached_tokens=answer.cached_tokens or 0,
        verify_calls=answer.verify_calls,
        correct_drafts=answer.correct_drafts,
        histogram=answer.histogram,
        finish_reason=(answer.finish_reason or "unknown") if flight.error is None else "error",
        error=flight.error,
        proposed_drafts=answer.proposed_drafts,
        chunks=len(flight.chunk_times),
    )


def _sum_of(histograms: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(counts) for counts in zip_longest(*histograms, fillvalue=0))
