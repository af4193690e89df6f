"""One timed window, and the requests in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.cycle import CycleTimes
    from search_spaces.workload import OperatingPoint


@dataclass(frozen=True, slots=True)
class RequestSample:
    """One request of a window, as the client saw it and as the server accounted for it.

    Attributes:
        prompt: Identifier of the prompt (`"chat/007"`).
        sent_s: When it was sent, seconds after the window opened.
        ttft_s: Time to the first token.
        e2e_s: Time to the last token.
        prompt_tokens: Tokens of the prompt, by the server's account.
        completion_tokens: Tokens of the answer, by the server's account.
        cached_tokens: Prompt tokens that came from the prefix cache.
        verify_calls: Verify forwards; 0 without speculation.
        correct_drafts: Draft tokens that were accepted, bonus tokens excluded.
        histogram: `histogram[k]` verify calls accepted exactly k drafts.
        finish_reason: SGLang's `finish_reason.type`; `"error"` where the request failed.
        error: What went wrong; `None` for a success.
        proposed_drafts: Draft tokens that were proposed; 0 where the server does not say.
        chunks: Stream chunks that carried tokens.
        late_s: How long after its arrival time it was sent (open loop; the client's fault).
    """

    prompt: str
    sent_s: float
    ttft_s: float
    e2e_s: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    verify_calls: int = 0
    correct_drafts: int = 0
    histogram: tuple[int, ...] = ()
    finish_reason: str = "length"
    error: str | None = None
    proposed_drafts: int = 0
    chunks: int = 0
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """One timed window of one setting in one launch at one operating point.

    A figure that was not measured is NaN, or `None` where its type says so.

    Attributes:
        point: The operating point.
        started_at: Wall-clock start of the window, seconds since the epoch.
        window_s: Length of the window.
        requests: Requests that finished with success.
        failed_requests: Requests that did not.
        output_tokens: Output tokens received inside the window.
        output_tok_s: `output_tokens / window_s`: prefill included, as a client sees it.
        accept_length: `1 + sum(correct drafts) / sum(verify calls)` over the window's requests,
            the bonus token included; `None` without speculation. SGLang's own
            `spec_accept_length` counts the prefill's token too and is not used (0.5.23).
        ttft_p50_ms: Median time to first token.
        ttft_p95_ms: 95th percentile of the time to first token.
        tpot_p50_ms: Median of `(e2e - ttft) / (tokens - 1)` over requests.
        tpot_p95_ms: 95th percentile of the same.
        e2e_p50_ms: Median time to last token.
        e2e_p95_ms: 95th percentile of the same.
        prompt_tokens: Prompt tokens of all successful requests.
        cached_tokens: Those that came from the prefix cache.
        histogram: Sum of the requests' histograms of correct drafts.
        workload_fingerprint: Digest of the rendered prompts and sampling, equal for equal load.
        simulated: Whether a simulated server produced it.
        invalid: Reasons not to believe it, as `"check: what was seen"` (`docs/validity.md`); empty
            for a good one.
        samples: Per-request data.
        warnings: What deserves a look and is believed all the same, in the same form.
        ttft_p99_ms: 99th percentile of the time to first token.
        tpot_p99_ms: 99th percentile of the time per output token.
        e2e_p99_ms: 99th percentile of the time to last token.
        chunk_p50_ms: Median time between two chunks of one stream. A chunk carries a whole
            verify's tokens, so this is not an inter-token latency.
        chunk_p95_ms: 95th percentile of the same.
        tokens_per_chunk: Mean tokens of the chunks after a request's first.
        user_tok_s: What one user sees: the mean over requests of
            `(tokens - 1) / (e2e - ttft)`.
        accept_rate: Correct drafts / proposed drafts; `None` without speculation, or where the
            server does not say what it proposed.
        request_s: Finished requests per second of the window.
        offered_request_s: Requests per second that arrived (open loop); `None` in a closed one.
        goodput_request_s: Requests per second that kept the workload's limits; `None` without.
        client_cpu_share: CPU that the busiest client process used, per second of the window.
        cycle: Where the time of its cycles went; `None` where nobody measured it.
    """

    point: OperatingPoint
    started_at: float
    window_s: float
    requests: int
    failed_requests: int
    output_tokens: int
    output_tok_s: float
    accept_length: float | None
    ttft_p50_ms: float
    ttft_p95_ms: float
    tpot_p50_ms: float
    tpot_p95_ms: float
    e2e_p50_ms: float
    e2e_p95_ms: float
    prompt_tokens: int
    cached_tokens: int
    histogram: tuple[int, ...]
    workload_fingerprint: str
    simulated: bool
    invalid: tuple[str, ...] = ()
    samples: tuple[RequestSample, ...] = ()
    warnings: tuple[str, ...] = ()
    ttft_p99_ms: float = math.nan
    tpot_p99_ms: float = math.nan
    e2e_p99_ms: float = math.nan
    chunk_p50_ms: float = math.nan
    chunk_p95_ms: float = math.nan
    tokens_per_chunk: float = math.nan
    user_tok_s: float = math.nan
    accept_rate: float | None = None
    request_s: float = math.nan
    offered_request_s: float | None = None
    goodput_request_s: float | None = None
    client_cpu_share: float = math.nan
    cycle: CycleTimes | None = None
