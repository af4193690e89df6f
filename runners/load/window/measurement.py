"""From a window to a `Measurement`: figures in server time, checks and the load's fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from results.records import Measurement, RequestSample
from runners.load.checks import acceptance, pace, requests, steadiness, tokens
from runners.load.checks.evidence import INVALIDATING, WARNING, Evidence
from runners.load.http.acceptance import accept_length, accept_rate, adaptive_steps_of
from runners.load.http.endpoint import Answer
from runners.load.schedule.pauses import ClientPauses
from runners.load.window.window import percentile
from runners.server_info import running_limit_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from runners.load.checks.evidence import Check
    from runners.load.http.in_flight import InFlightRequest
    from runners.load.prompts.prompts import Prompt
    from runners.load.window.window import Window
    from search_spaces.configuration import Speculation
    from search_spaces.workload import Goodput, OperatingPoint, Workload

CHECKS: tuple[ModuleType, ...] = (
    requests,
    tokens,
    pace,
    steadiness,
    acceptance,
)
"""All modules with checks; importing them registers the checks."""


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
    """Compute the figures of a window in server time, and run its checks.

    Percentiles interpolate linearly, over successful requests. A figure without data is NaN.

    Args:
        window: The window.
        prompts: Rendered prompts of the window.
        workload: Requested load.
        point: Operating point.
        speculation: Setting that the server reports; the acceptance is checked against it.
        time_scale: Simulated seconds per real second.
        simulated: Whether the server is simulated.
        arrivals: Arrival times of an open loop in server seconds.
        watched: Findings of the window's watches.
        server_info: `/server_info` of the server.
        whole_run: Whether the figures cover the whole run. The checks and the offered rate always
            cover `window`, because the drain is not a steady load.
        decode_s: Real seconds per verify (token) in the last pass of the warm-up.
        ramp_prompts: Rendered prompts of the ramp, which may be in the prefix cache.
    """
    loaded = window
    if whole_run:
        window = window.whole_run()
    flights = window.flights
    samples = tuple(sample_of(flight, window.opened, time_scale) for flight in flights)
    good = [sample for sample in samples if sample.error is None]
    window_s = window.seconds * time_scale
    counted = [sample_of(flight, window.opened, time_scale) for flight in window.counted()]
    ttft = [1000 * sample.ttft_s for sample in counted]
    e2e = [1000 * sample.e2e_s for sample in counted]
    tpot = [1000 * pace for sample in counted if (pace := _tpot_s(sample)) is not None]
    speeds = [1000 / pace for pace in tpot if pace > 0]
    gaps = [1000 * gap * time_scale for gap in window.chunk_gaps()]
    finished = [sample_of(flight, window.opened, time_scale) for flight in window.finished()]
    correct = sum(sample.correct_drafts for sample in good)
    verify_calls = sum(sample.verify_calls for sample in good)
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
        output_tokens=window.tokens,
        output_tok_s=_per_second(window.tokens, window_s),
        accept_length=accept_length(verify_calls, correct) if speculation.enabled else None,
        ttft_p50_ms=percentile(ttft, 50),
        ttft_p95_ms=percentile(ttft, 95),
        ttft_p99_ms=percentile(ttft, 99),
        tpot_p50_ms=percentile(tpot, 50),
        tpot_p95_ms=percentile(tpot, 95),
        tpot_p99_ms=percentile(tpot, 99),
        e2e_p50_ms=percentile(e2e, 50),
        e2e_p95_ms=percentile(e2e, 95),
        e2e_p99_ms=percentile(e2e, 99),
        chunk_p50_ms=percentile(gaps, 50),
        chunk_p95_ms=percentile(gaps, 95),
        tokens_per_chunk=_tokens_per_chunk(flights),
        user_tok_s=statistics.fmean(speeds) if speeds else math.nan,
        accept_rate=rate if speculation.enabled else None,
        request_s=_per_second(len(finished), window_s),
        offered_request_s=_offered(loaded, time_scale) if point.is_open else None,
        goodput_request_s=(
            None
            if workload.goodput is None
            else _per_second(sum(_meets(s, workload.goodput) for s in finished), window_s)
        ),
        client_cpu_share=window.client_cpu_share,
        prompt_tokens=sum(sample.prompt_tokens for sample in good),
        cached_tokens=sum(sample.cached_tokens for sample in good),
        histogram=tuple(map(sum, zip_longest(*(s.histogram for s in good), fillvalue=0))),
        workload_fingerprint=fingerprint(prompts, workload, arrivals),
        simulated=simulated,
        invalid=reasons_against(evidence, watched),
        warnings=warnings_about(evidence),
        samples=samples,
    )


def reasons_against(evidence: Evidence, watched: Sequence[str] = ()) -> tuple[str, ...]:
    """Return every reason against a window as `"code: phrase"`; empty for a valid window.

    Args:
        evidence: The window.
        watched: Findings of the watches, in the same format.
    """
    return (*watched, *_findings(INVALIDATING, evidence))


def warnings_about(evidence: Evidence) -> tuple[str, ...]:
    """Return every warning as `"code: phrase"`; empty if there is none."""
    return _findings(WARNING, evidence)


def _findings(checks: dict[str, Check], evidence: Evidence) -> tuple[str, ...]:
    findings = ((code, check(evidence)) for code, check in checks.items())
    return tuple(f"{code}: {finding}" for code, finding in findings if finding is not None)


def sample_of(flight: InFlightRequest, opened: float, time_scale: float = 1.0) -> RequestSample:
    """Return the record of a request, in server seconds from the opening of the window."""
    # TTFT starts at `sent`, also in an open loop. The client's own delay is `late_s`; a large delay
    # makes the window invalid.
    answer = flight.answer or Answer()
    return RequestSample(
        prompt=flight.prompt,
        sent_s=(flight.sent - opened) * time_scale,
        ttft_s=flight.ttft_s * time_scale,
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


def _meets(sample: RequestSample, limits: Goodput) -> bool:
    return all(
        limit is None or value is None or 1000 * value <= limit
        for value, limit in (
            (sample.ttft_s, limits.ttft_ms),
            (_tpot_s(sample), limits.tpot_ms),
            (sample.e2e_s, limits.e2e_ms),
        )
    )


def _tokens_per_chunk(flights: Sequence[InFlightRequest]) -> float:
    # The first chunk of a request has the one token of the prefill.
    later = [flight for flight in flights if flight.error is None and len(flight.chunk_times) > 1]
    chunks = sum(len(flight.chunk_times) - 1 for flight in later)
    tokens = sum(flight.tokens - flight.chunk_tokens[0] for flight in later)
    return tokens / chunks if chunks else math.nan


def _offered(window: Window, time_scale: float) -> float:
    # The window closes with the last arrival, so it has as many gaps as arrivals.
    due = [f.due for f in window.flights if window.opened < f.due <= window.closed]
    return _per_second(len(due), window.seconds * time_scale)


def _per_second(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def fingerprint(
    prompts: Sequence[Prompt], workload: Workload, arrivals: Sequence[float] = ()
) -> str:
    """Return a digest of a load: rendered prompts in order, sampling, answer lengths and arrivals.

    Equal loads have equal fingerprints, whatever server they are sent to.

    Args:
        prompts: Rendered prompts of one window.
        workload: Defines sampling and mean answer length.
        arrivals: Arrival times of an open loop in server seconds; empty for a closed loop.
    """
    digest = hashlib.sha256()
    sampling = {
        **dict(workload.sampling),
        "temperature": float(workload.temperature),
        "max_new_tokens": workload.output_tokens,
        "ignore_eos": not workload.natural_length,
    }
    digest.update(json.dumps(sampling, sort_keys=True).encode())
    for prompt in prompts:
        content: object = prompt.text if prompt.input_ids is None else list(prompt.input_ids)
        if prompt.messages is not None:
            content = prompt.messages
        digest.update(b"\n" + json.dumps(content).encode())
        # Mean lengths are left out: stored fingerprints of loads with equal lengths stay valid.
        if prompt.output_tokens not in {None, workload.output_tokens}:
            digest.update(b"\n%d" % prompt.output_tokens)
    if arrivals:
        digest.update(b"\n" + json.dumps(list(arrivals)).encode())
    return digest.hexdigest()
