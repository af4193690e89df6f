"""From the requests of a load to a measurement.

The *window* is the part of a load that counts. It opens when the load is steady: three quarters of
the lanes of a closed loop have ended the cut answer that they began with (`ramp_lengths`), or an
open loop's ramp is over. A load without ramp opens it with its first request. It closes when the
first lane finds no more work (with the forward that brought it there: `end_of_burst`), or the last
request of an open loop has been sent; the rest is drain.

What is counted where:

* Tokens, finished requests and chunks: what arrived between opening and closing, exactly, of
  requests that were sent before the window too.
* Latencies: the requests whose whole life lies in the window (`counted`); those of ramp and drain
  met a lighter load. At concurrency 1 these are all.
* Acceptance, token totals, success: all requests but the ramp's, for they do not depend on the
  load, and results are paired by prompt.

A *whole run* has no ramp, and its window reaches to the last token: `Window.whole_run`. Other load
generators report such figures.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from results.records import Measurement, RequestSample
from runners.load.checks.pauses import ClientPauses
from runners.load.checks.validity import reasons_against
from runners.load.checks.warnings import warnings_about
from runners.load.http.answer import Answer
from runners.load.window.acceptance import accept_length, accept_rate, adaptive_steps_of
from runners.load.window.digest import fingerprint
from runners.load.window.evidence import Evidence
from runners.sglang.facts import running_limit_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runners.load.prompts.prompts import Prompt
    from runners.load.window.in_flight import InFlightRequest
    from search_spaces.configuration import Speculation
    from search_spaces.workload import Goodput, OperatingPoint, Workload


@dataclass(frozen=True, slots=True)
class Window:
    """What the loops saw, in real time.

    Attributes:
        started_at: Seconds since the epoch at which the window opened.
        opened: The clock when the load was whole.
        closed: The clock when there was no more work.
        flights: All requests of the workload's prompts, those of the drain included, in the order
            of sending.
        client_cpu_share: CPU of the busiest client process per second of the window.
        ramp: The cut requests with which the lanes of a closed loop began.
        client_pauses: When each client process did not run, from the load's start to its end.
    """

    started_at: float
    opened: float
    closed: float
    flights: tuple[InFlightRequest, ...]
    client_cpu_share: float = 0.0
    ramp: tuple[InFlightRequest, ...] = ()
    client_pauses: tuple[ClientPauses, ...] = ()

    @property
    def begun(self) -> float:
        """When the first request of the load was sent."""
        sent = (flight.sent for flight in (*self.ramp, *self.flights) if flight.sent)
        return min(sent, default=self.opened)

    @property
    def seconds(self) -> float:
        """Its length, in real time."""
        return max(0.0, self.closed - self.opened)

    @property
    def tokens(self) -> int:
        """Output tokens that arrived inside it."""
        arriving = (*self.ramp, *self.flights)
        return sum(f.tokens_at(self.closed) - f.tokens_at(self.opened) for f in arriving)

    def whole_run(self) -> Window:
        """Return the window from the first send to the last token of a load without ramp.

        This window has all tokens and all requests, as `sglang.bench_serving` (0.5.9 to 0.5.23)
        counts. Here the tokens of failed requests count too.
        """
        opened = min(flight.sent for flight in self.flights)
        return replace(
            self,
            started_at=self.started_at - (self.opened - opened),
            opened=opened,
            closed=max(flight.last for flight in self.flights),
        )

    def counted(self) -> list[InFlightRequest]:
        """The good requests whose latencies count.

        They are those sent from the opening on, up to the first that was still on its way at the
        closing. Cut by the order of sending: to take whatever ended in time would prefer short
        answers. Where a window is too short for any, it is all that were sent inside it; where
        none was, all.
        """
        good = [flight for flight in self.flights if flight.error is None]
        inside = [f for f in good if self.opened <= f.sent <= self.closed]
        return self.whole_lives() or inside or good

    def whole_lives(self) -> list[InFlightRequest]:
        """The good requests sent inside it before the first that outlived it."""
        good = [flight for flight in self.flights if flight.error is None]
        inside = [f for f in good if self.opened <= f.sent <= self.closed]
        cut = min((f.sent for f in inside if f.last > self.closed), default=float("inf"))
        return [f for f in inside if f.sent < cut]

    def finished(self) -> list[InFlightRequest]:
        """The good requests whose last token arrived inside it."""
        return [f for f in self.flights if f.error is None and self.opened <= f.last <= self.closed]

    def chunk_gaps(self) -> list[float]:
        """Real seconds between two chunks of one stream, both inside it."""
        return [
            later - earlier
            for flight in self.flights
            if flight.error is None
            for earlier, later in pairwise(flight.chunk_times)
            if earlier >= self.opened and later <= self.closed
        ]


def end_of_burst(flights: Sequence[InFlightRequest], instant: float) -> float:
    """When the chunks that came with the one at `instant` had all arrived.

    A forward ends for all requests of a batch at once, and their chunks arrive one after the
    other. The lane that finds no more work does so while the others' are still coming: to close
    right there would take the forward's whole time and leave out some of its tokens. A burst is
    over after half of a short time between two chunks of a stream (their 10th percentile).
    """
    gaps = [later - earlier for f in flights for earlier, later in pairwise(f.chunk_times)]
    if not gaps:
        return instant
    limit = instant + percentile(gaps, 10) / 2
    arrived = ((f.chunk_times, bisect_right(f.chunk_times, limit)) for f in flights)
    return max(
        (times[n - 1] for times, n in arrived if n and times[n - 1] > instant), default=instant
    )


def measurement_of(
    window: Window,
    prompts: Sequence[Prompt],
    *,
    workload: Workload,
    point: OperatingPoint,
    speculation: Speculation,
    time_scale: float,
    simulated: bool,
    arrivals: Sequence[float] = (),
    watched: Sequence[str] = (),
    server_info: Mapping[str, Any] | None = None,
    whole_run: bool = False,
    decode_s: float | None = None,
    ramp_prompts: Sequence[Prompt] = (),
) -> Measurement:
    """Turns a window into a record, in the server's own time.

    Percentiles interpolate linearly, over successful requests; what nothing shows is NaN.

    Args:
        window: The window.
        prompts: What was sent, as rendered.
        workload: How it was sent.
        point: The operating point.
        speculation: What the server says it runs; the acceptance is checked against it.
        time_scale: Simulated seconds per real second.
        simulated: Whether the server is a simulation.
        arrivals: Times of an open loop, in the server's own seconds.
        watched: Reasons of the window's watches.
        server_info: What the server says of itself.
        whole_run: Whether the figures cover the whole run. The checks and the rate of arrivals
            still cover `window`: the drain is no steady load.
        decode_s: Real seconds per verify (token) in the last pass of the warm-up.
        ramp_prompts: What the ramp sent: the prefix cache may know it.
    """
    loaded = window
    if whole_run:
        window = window.whole_run()
    flights = window.flights
    samples = tuple(_sample(flight, window.opened, time_scale) for flight in flights)
    good = [sample for sample in samples if sample.error is None]
    window_s = window.seconds * time_scale
    tokens = window.tokens
    counted = [_sample(flight, window.opened, time_scale) for flight in window.counted()]
    ttft = [sample.ttft_s for sample in counted]
    e2e = [sample.e2e_s for sample in counted]
    tpot = [pace for sample in counted if (pace := _tpot_s(sample)) is not None]
    speeds = [1 / pace for pace in tpot if pace > 0]
    gaps = [gap * time_scale for gap in window.chunk_gaps()]
    finished = [_sample(flight, window.opened, time_scale) for flight in window.finished()]
    correct = sum(sample.correct_drafts for sample in good)
    verify_calls = sum(sample.verify_calls for sample in good)
    length = accept_length(verify_calls, correct)
    adaptive_steps = adaptive_steps_of(server_info or {}) if speculation.enabled else ()
    rate = accept_rate(
        correct,
        verify_calls,
        replace(speculation, num_draft_tokens=None) if adaptive_steps else speculation,
        sum(sample.proposed_drafts for sample in good),
    )
    evidence = Evidence(
        samples,
        flights,
        prompts,
        point,
        workload,
        speculation,
        opened=loaded.opened,
        closed=loaded.closed,
        window_tokens=loaded.tokens,
        time_scale=time_scale,
        client_cpu_share=window.client_cpu_share,
        client_pauses=ClientPauses.of(
            window.client_pauses, window.begun, window.opened, window.closed
        ),
        adaptive_steps=adaptive_steps,
        running_limit=running_limit_of(server_info or {}),
        ramp=window.ramp,
        whole_lives=len(window.whole_lives()),
        decode_s=decode_s,
        ramp_prompts=ramp_prompts,
    )
    return Measurement(
        point=point,
        started_at=window.started_at,
        window_s=window_s,
        requests=len(good),
        failed_requests=len(samples) - len(good),
        output_tokens=tokens,
        output_tok_s=_per(tokens, window_s),
        accept_length=length if speculation.enabled else None,
        ttft_p50_ms=1000 * percentile(ttft, 50),
        ttft_p95_ms=1000 * percentile(ttft, 95),
        ttft_p99_ms=1000 * percentile(ttft, 99),
        tpot_p50_ms=1000 * percentile(tpot, 50),
        tpot_p95_ms=1000 * percentile(tpot, 95),
        tpot_p99_ms=1000 * percentile(tpot, 99),
        e2e_p50_ms=1000 * percentile(e2e, 50),
        e2e_p95_ms=1000 * percentile(e2e, 95),
        e2e_p99_ms=1000 * percentile(e2e, 99),
        chunk_p50_ms=1000 * percentile(gaps, 50),
        chunk_p95_ms=1000 * percentile(gaps, 95),
        tokens_per_chunk=_tokens_per_chunk(flights),
        user_tok_s=statistics.fmean(speeds) if speeds else math.nan,
        accept_rate=rate if speculation.enabled else None,
        request_s=_per(len(finished), window_s),
        offered_request_s=_offered(loaded, time_scale) if point.is_open else None,
        goodput_request_s=(
            None
            if workload.goodput is None
            else _per(sum(_keeps(s, workload.goodput) for s in finished), window_s)
        ),
        client_cpu_share=window.client_cpu_share,
        prompt_tokens=sum(sample.prompt_tokens for sample in good),
        cached_tokens=sum(sample.cached_tokens for sample in good),
        histogram=_sum_of(sample.histogram for sample in good),
        workload_fingerprint=fingerprint(prompts, workload, arrivals),
        simulated=simulated,
        invalid=reasons_against(evidence, watched),
        warnings=warnings_about(evidence),
        samples=samples,
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile with linear interpolation between order statistics; NaN for no values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _sample(flight: InFlightRequest, opened: float, time_scale: float) -> RequestSample:
    # TTFT counts from `sent`, also in an open loop: what the client was late by is its own fault,
    # stands beside it as `late_s`, and makes a window invalid where it is much.
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
        late_s=(flight.sent - flight.due) * time_scale if flight.due else 0.0,
    )


def _tpot_s(sample: RequestSample) -> float | None:
    if sample.completion_tokens <= 1:
        return None
    return (sample.e2e_s - sample.ttft_s) / (sample.completion_tokens - 1)


def _keeps(sample: RequestSample, limits: Goodput) -> bool:
    return all(
        limit is None or value is None or 1000 * value <= limit
        for value, limit in (
            (sample.ttft_s, limits.ttft_ms),
            (_tpot_s(sample), limits.tpot_ms),
            (sample.e2e_s, limits.e2e_ms),
        )
    )


def _tokens_per_chunk(flights: Sequence[InFlightRequest]) -> float:
    # A request's first chunk is the prefill's one token.
    later = [flight for flight in flights if flight.error is None and len(flight.chunk_times) > 1]
    chunks = sum(len(flight.chunk_times) - 1 for flight in later)
    tokens = sum(flight.tokens - flight.chunk_tokens[0] for flight in later)
    return tokens / chunks if chunks else math.nan


def _offered(window: Window, time_scale: float) -> float:
    # The last arrival closes the window, so that as many gaps as arrivals lie within it.
    due = [f.due for f in window.flights if window.opened < f.due <= window.closed]
    return _per(len(due), window.seconds * time_scale)


def _per(count: float, amount: float) -> float:
    return count / amount if amount > 0 else 0.0


def _sum_of(histograms: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(counts) for counts in zip_longest(*histograms, fillvalue=0))
