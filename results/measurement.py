"""One window and its requests."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from search_spaces.workload import OperatingPoint


@dataclass(frozen=True, slots=True)
class RequestSample:
    """One request of a window, as seen by the client and reported by the server.

    Attributes:
        prompt: Identifier of the prompt (`"chat/007"`).
        sent_s: Send time in seconds after the start of the window.
        ttft_s: Time to the first token.
        e2e_s: Time to the last token.
        prompt_tokens: Tokens of the prompt, reported by the server.
        completion_tokens: Tokens of the answer, reported by the server.
        cached_tokens: Prompt tokens from the prefix cache.
        verify_calls: Verify forwards; 0 without speculation.
        correct_drafts: Accepted draft tokens without bonus tokens.
        histogram: `histogram[k]` verify calls accepted exactly k drafts.
        finish_reason: SGLang's `finish_reason.type`; `"error"` for a failed request.
        error: The error; `None` for a success.
        proposed_drafts: Proposed draft tokens; 0 if the server does not report them.
        chunks: Stream chunks with tokens.
        late_s: Delay between arrival time and send (open loop; caused by the client).
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
    """One window of one setting in one launch at one operating point.

    Values that were not measured are NaN, or `None` if the type allows it.

    Attributes:
        point: The operating point.
        started_at: Wall-clock start of the window, seconds since the epoch.
        window_s: Length of the window.
        requests: Successful requests.
        failed_requests: Failed requests.
        output_tokens: Output tokens received in the window.
        output_tok_s: `output_tokens / window_s`, with prefill, as a client sees it.
        accept_length: `1 + sum(correct drafts) / sum(verify calls)` over the window's requests,
            with the bonus token; `None` without speculation. SGLang's `spec_accept_length` also
            counts the token of the prefill and is not used (0.5.23).
        ttft_p50_ms: Median time to first token.
        ttft_p95_ms: 95th percentile of time to first token.
        tpot_p50_ms: Median of `(e2e - ttft) / (tokens - 1)` over requests.
        tpot_p95_ms: 95th percentile of the same.
        e2e_p50_ms: Median time to last token.
        e2e_p95_ms: 95th percentile of the same.
        prompt_tokens: Prompt tokens of all successful requests.
        cached_tokens: Prompt tokens from the prefix cache.
        histogram: Sum of the requests' histograms of correct drafts.
        workload_fingerprint: Digest of rendered prompts and sampling, equal for equal load.
        simulated: Whether a simulated server gave the answers.
        invalid: Reasons that make it invalid, as `"check: finding"` (`docs/validity.md`); empty if
            valid.
        samples: Data per request.
        warnings: Warnings about a valid measurement, in the same form.
        ttft_p99_ms: 99th percentile of time to first token.
        tpot_p99_ms: 99th percentile of time per output token.
        e2e_p99_ms: 99th percentile of time to last token.
        chunk_p50_ms: Median time between two chunks of a stream. A chunk has all tokens of a
            verify, so this is not an inter-token latency.
        chunk_p95_ms: 95th percentile of the same.
        tokens_per_chunk: Mean tokens of chunks after the first of a request.
        user_tok_s: Speed for one user: mean over requests of `(tokens - 1) / (e2e - ttft)`.
        accept_rate: Correct drafts / proposed drafts; `None` without speculation, or if the server
            does not report proposed drafts.
        request_s: Finished requests per second of the window.
        offered_request_s: Arrived requests per second (open loop); `None` in a closed loop.
        goodput_request_s: Requests per second within the workload's limits; `None` without limits.
        client_cpu_share: CPU use of the busiest client process, per second of the window.
        cycle: Cycle times; `None` if not measured.
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


PARTS = ("draft", "draft_extend", "verify", "rest")
"""A whole cycle, without overlap. Without speculation: `verify` (the decode forward) and `rest`."""

CycleSource = Literal["plugin", "device_timer"]


@dataclass(frozen=True, slots=True)
class PartTime:
    """One part of the cycles of one batch size.

    Attributes:
        count: Number of cycles with this part. For the device timer, which does not count: number
            of verifies (tokens without speculation), summed over requests.
        total_s: Sum of seconds.
        median_s: Median; `None` if only totals are known (SGLang's device timer).
        p05_s: 5th percentile, mostly free of gaps of the host; `None` like the median.
        p95_s: 95th percentile; `None` like the median.
        graph_share: Share of runs as a CUDA graph; `None` if unknown.
    """

    count: int
    total_s: float
    median_s: float | None = None
    p05_s: float | None = None
    p95_s: float | None = None
    graph_share: float | None = None


@dataclass(frozen=True, slots=True)
class BatchCycles:
    """Cycles of one batch size.

    Attributes:
        size: Requests that ran together; 0 if the source does not separate batch sizes.
        cycle: Time from the start of a cycle to the start of the next, without a prefill between.
        parts: Times by part (`PARTS`), without parts that never ran.
    """

    size: int
    cycle: PartTime
    parts: dict[str, PartTime]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `asdict`."""
        parts = {name: PartTime(**part) for name, part in data["parts"].items()}
        return cls(data["size"], PartTime(**data["cycle"]), parts)


@dataclass(frozen=True, slots=True)
class CycleTimes:
    """Cycle times of one window, from the start of its ramp to the end of its drain.

    The server is idle at both reads, so warm-up is not included. Incomplete batches mostly have
    smaller sizes. With data parallelism the times are those of the first replica.

    Attributes:
        source: The tuner's plugin in SGLang (each cycle, with time between forwards), or SGLang's
            device timer (totals of GPU time).
        batches: By batch size, ascending.
    """

    source: CycleSource
    batches: tuple[BatchCycles, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON for database and output."""
        return {"source": self.source, "batches": [asdict(batch) for batch in self.batches]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(data["source"], tuple(BatchCycles.from_dict(b) for b in data["batches"]))
