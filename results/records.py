"""Records: what was planned, launched and measured, as plain frozen values.

Every layer above speaks in these. They carry their units in their names; times are seconds (`_s`)
or milliseconds (`_ms`), always in the server's own time: a simulated server that runs faster than
life is converted before a record is made.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from results.machine import Machine as Machine  # noqa: PLC0414, TC001 - a record like the rest

if TYPE_CHECKING:
    from search_spaces.configuration import Configuration, Setting
    from search_spaces.workload import OperatingPoint

Fault = Literal["configuration", "host", "study", "client"]
"""Who is to blame: the configuration (infeasible), the host (retry or pause), the study (stop),
or the tuner's own side (a bug, or an interrupt)."""

LOSING_FAULTS: tuple[Fault, ...] = ("host", "client")
"""Faults that lose a launch: it says nothing of its configuration and spends no budget."""


class TrialState(enum.StrEnum):
    """What became of a trial."""

    RUNNING = "running"
    COMPLETE = "complete"
    INFEASIBLE = "infeasible"
    """It cannot run, or violates a constraint of the objective."""
    INVALID = "invalid"
    """It was measured, but the measurement is not believed."""
    FAILED = "failed"
    """A fault of the host or the study, not of the configuration."""
    INACTIVE = "inactive"
    """The server ignored a knob, so this is not the configuration that was asked for."""

    @property
    def is_verdict(self) -> bool:
        """Whether the state judges the configuration (and so spends budget)."""
        return self in {TrialState.COMPLETE, TrialState.INFEASIBLE, TrialState.INVALID}


class Purpose(enum.StrEnum):
    """Why a configuration is measured."""

    BASELINE = "baseline"
    SEARCH = "search"
    ANCHOR = "anchor"
    CONFIRMATION = "confirmation"
    RETRY = "retry"


class LaunchState(enum.StrEnum):
    """What became of a launch."""

    RUNNING = "running"
    COMPLETE = "complete"
    """It served, and every setting in it was judged."""
    INFEASIBLE = "infeasible"
    """Its configuration cannot run."""
    FAILED = "failed"
    """Lost to the host, the study or the client."""
    LOST = "lost"
    """The tuner was killed or interrupted while it ran."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something did not work; a value, so that it can be stored and shown.

    Attributes:
        kind: A short stable code (`"cuda_oom"`, `"port_taken"`, `"ready_timeout"`, ...).
        phase: Where it happened (`"arguments"`, `"distributed"`, `"weights"`, `"kv_cache"`,
            `"cuda_graph"`, `"warmup"`, `"ready"`, `"load"`, `"stop"`).
        fault: Who is to blame.
        message: One or two sentences with the salient line of the log.
    """

    kind: str
    phase: str
    fault: Fault
    message: str

    def to_dict(self) -> dict[str, str]:
        """The JSON shape of `docs/contract.md`."""
        return {
            "kind": self.kind,
            "phase": self.phase,
            "fault": self.fault,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One server process tree, named so that it can never be confused with another.

    Attributes:
        pid: The process that was started; also its process group and session id.
        started: Start time of `pid` as the kernel reports it (seconds since the epoch), so that
            a reused pid is not mistaken for ours.
        mark: The launch's unique mark, carried in the environment of every descendant.
        port: The HTTP port.
        host: Name of the machine on which it runs.
    """

    pid: int
    started: float
    mark: str
    port: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class LaunchIntent:
    """What is about to be launched; stored before anything is started.

    Attributes:
        configuration: The configuration that the server starts with.
        settings: The settings to be switched through, in order; empty where none is switched.
        mark: Unique mark; every process of the launch carries `TUNER_LAUNCH=<mark>`.
        log: Path of the server's log file.
    """

    configuration: Configuration
    settings: tuple[Setting, ...]
    mark: str
    log: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a running server says it runs, after its own rewrites.

    Attributes:
        configuration: In the shape of the configuration that was asked for.
        sglang_version: As the server states it.
        simulated: Whether the server is a simulation; then so is every figure from it.
        time_scale: Simulated seconds per real second; 1.0 for a real server.
        server_info: The raw `/server_info` body, for audits.
        environment: What the server's own process has in its environment, as far as it can be
            seen, SGLang's rewrites included (it sets `NCCL_CUMEM_ENABLE` and others); only
            variables that bear on serving, and nothing secret.
    """

    configuration: Configuration
    sglang_version: str
    simulated: bool = False
    time_scale: float = 1.0
    server_info: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Launch:
    """One server process tree, from start to proof that it is gone, as it was stored.

    Attributes:
        id: Number of the launch within its study, from 0.
        state: What became of it.
        intent: What was launched.
        command: The argv that was started, and `environment` what it was given beside the
            caller's own.
        environment: Variables set for the launch (`None`: removed).
        process: The process tree; `None` before it existed.
        phases: Seconds per start-up phase, in order.
        ready_s: Seconds from start to the first good generation; `None` if never ready.
        seconds: Seconds from start to proof that it is gone; `None` while it runs.
        failure: Why it failed.
        trials: Numbers of the trials measured in it.
        sglang_version: As the server stated it.
        machine: Where it ran; `None` where that was not recorded.
        effective_environment: `Resolved.environment` once it was ready.
        log_digest: SHA-256 of the log file at its end; `None` while it runs.
        imported_from: `"study#launch"` where a forked study took it over from another one:
            it was not spent by this study.
    """

    id: int
    state: LaunchState
    intent: LaunchIntent
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str | None], ...] = ()
    process: ProcessIdentity | None = None
    phases: tuple[tuple[str, float], ...] = ()
    ready_s: float | None = None
    seconds: float | None = None
    failure: Failure | None = None
    trials: tuple[int, ...] = ()
    sglang_version: str | None = None
    machine: Machine | None = None
    effective_environment: tuple[tuple[str, str], ...] = ()
    log_digest: str | None = None
    imported_from: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether a kill or the host took it: it is listed, and spends no budget."""
        if self.state is LaunchState.FAILED:
            return self.failure is not None and self.failure.fault in LOSING_FAULTS
        return self.state is LaunchState.LOST


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration judged, as it was stored; one Optuna trial of the same number.

    Attributes:
        number: From 0, in the order of creation.
        purpose: Why it was measured.
        state: What became of it.
        configuration: What was asked for, in canonical form.
        resolved: What the server said it ran; `None` if it never served.
        failure: Why it is not `complete`.
        measurements: One per operating point, in the order of the study's points.
        launches: Launches that worked on it, lost ones included.
    """

    number: int
    purpose: Purpose
    state: TrialState
    configuration: Configuration
    resolved: Configuration | None = None
    failure: Failure | None = None
    measurements: tuple[Measurement, ...] = ()
    launches: tuple[int, ...] = ()
