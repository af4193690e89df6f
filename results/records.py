"""Records of launches, trials, measurements and machines, as frozen values.

Names contain units. Times are in seconds (`_s`) or milliseconds (`_ms`) of the server's time: times
of a simulated server that runs faster are converted first.
"""

from __future__ import annotations

import enum
import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.configuration import Configuration, Setting
    from search_spaces.workload import OperatingPoint


Fault = Literal["configuration", "host", "study", "client"]
"""Who is to blame: the configuration (infeasible), the host (retry or pause), the study (stop),
or the tuner's own side (a bug, or an interrupt)."""

LOSING_FAULTS: tuple[Fault, ...] = ("host", "client")
"""Faults that lose a launch: it says nothing of its configuration and spends no budget."""


KILLED = frozenset({"scheduler_killed", "server_killed"})
"""Failure kinds that either the host or the configuration may have caused."""


class TrialState(enum.StrEnum):
    """State of a trial."""

    RUNNING = "running"
    COMPLETE = "complete"
    INFEASIBLE = "infeasible"
    """It cannot run, or violates a constraint of the objective."""
    INVALID = "invalid"
    """It was measured, but the measurement is not believed."""
    FAILED = "failed"
    """A fault of the host or the study, not of the configuration."""
    INACTIVE = "inactive"
    """The server ignored a knob, so this is not the configuration that was asked for; or it would
    ignore one, so that it is another trial's, and it was not launched."""

    @property
    def is_verdict(self) -> bool:
        """Whether the state judges the configuration, and so counts against the budget."""
        return self in {TrialState.COMPLETE, TrialState.INFEASIBLE, TrialState.INVALID}


class Purpose(enum.StrEnum):
    """Purpose of a trial."""

    BASELINE = "baseline"
    SEARCH = "search"
    ANCHOR = "anchor"
    CONFIRMATION = "confirmation"
    RETRY = "retry"


class LaunchState(enum.StrEnum):
    """State of a launch."""

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
    """Why something failed, as a value that can be stored.

    Attributes:
        kind: Short stable code (`"cuda_oom"`, `"port_taken"`, `"ready_timeout"`, ...).
        phase: Where it failed (`"arguments"`, `"distributed"`, `"weights"`, `"kv_cache"`,
            `"cuda_graph"`, `"warmup"`, `"ready"`, `"load"`, `"stop"`).
        fault: What caused it.
        message: One or two sentences with the decisive line of the log.
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
    """A process tree of a server, identified so that it cannot be confused with another.

    Attributes:
        pid: The started process; also its process group and session id.
        started: Start time of `pid` from the kernel (seconds since the epoch), which detects a
            reused pid.
        mark: Unique mark of the launch, in the environment of every descendant.
        port: HTTP port.
        host: Name of its machine.
    """

    pid: int
    started: float
    mark: str
    port: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class LaunchIntent:
    """A planned launch, stored before any process is started.

    Attributes:
        configuration: Configuration of the first trial. Without settings, the server starts with
            it; else with the most steps and draft tokens of the settings.
        settings: Settings to measure in order; empty if only one is measured.
        mark: Unique mark; every process of the launch has `TUNER_LAUNCH=<mark>`.
        log: Path of the server's log file.
    """

    configuration: Configuration
    settings: tuple[Setting, ...]
    mark: str
    log: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a running server reports, after SGLang's rewrites.

    Attributes:
        configuration: Same shape as the requested configuration.
        sglang_version: Version reported by the server.
        simulated: Whether the server is simulated, and so all its results.
        time_scale: Simulated seconds per real second; 1.0 for a real server.
        server_info: Raw `/server_info` body, for audits.
        environment: Environment of the server's process, with SGLang's changes (it sets
            `NCCL_CUMEM_ENABLE` and others). Only variables that affect serving, without secrets.
    """

    configuration: Configuration
    sglang_version: str
    simulated: bool = False
    time_scale: float = 1.0
    server_info: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """One server process tree, from start to proof of its end, as stored.

    Attributes:
        id: Number of the launch within its study, from 0.
        state: State of the launch.
        intent: The planned launch.
        command: The started argv.
        environment: Variables that were set (`None`: removed).
        process: The process tree; `None` before it existed.
        phases: Seconds per start-up phase, in order.
        ready_s: Seconds from start to the first correct generation; `None` if never ready.
        seconds: Seconds from start to proof of the end; `None` while running.
        failure: Why it failed.
        trials: Numbers of the trials measured in it.
        sglang_version: Version reported by the server.
        machine: Its machine; `None` if not recorded.
        effective_environment: `Resolved.environment`, once ready.
        log_digest: SHA-256 of the log at its end; `None` while running.
        imported_from: `"study#launch"` if a fork copied it; it does not count against the fork's
            budget.
        created: When it was stored, before any process was started (seconds since the epoch);
            `None` if not read from a database.
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
    created: float | None = field(default=None, compare=False)

    @property
    def is_lost(self) -> bool:
        """Whether a kill or the host ended it. Lost launches are listed and do not count."""
        if self.state is LaunchState.FAILED:
            return self.failure is not None and self.failure.fault in LOSING_FAULTS
        return self.state is LaunchState.LOST


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration with its state, as stored; Optuna's trial of the same number.

    Attributes:
        number: From 0, in the order of creation.
        purpose: Purpose of the trial.
        state: State of the trial.
        configuration: Requested configuration, canonical.
        resolved: What the server reported; `None` if it was never ready.
        failure: Why it is not `complete`.
        measurements: One per operating point, in the order of the study's points.
        launches: Its launches, including lost ones and those that used it as a reference run.
        judged_in: Launch that judged it, whose measurements it has; `None` if not judged.
    """

    number: int
    purpose: Purpose
    state: TrialState
    configuration: Configuration
    resolved: Configuration | None = None
    failure: Failure | None = None
    measurements: tuple[Measurement, ...] = ()
    launches: tuple[int, ...] = ()
    judged_in: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Machine:
    """Machine of the servers. `None` or an empty tuple means unknown or absent.

    Attributes:
        host: Name of the machine.
        sglang: Version of SGLang.
        torch: Version of PyTorch with its build (`"2.9.1+cu128"`).
        nccl: Version of PyTorch's NCCL.
        python: Version of the server's interpreter.
        driver: Version of the GPU driver.
        gpus: Names of the visible GPUs, in the driver's order.
        topology: Output of `nvidia-smi topo -m`.
        kernel: Version of the operating system's kernel.
        cpu: Name and number of the processors.
        caches: Folders of caches of compiled kernels by package. Kernels found there are not
            compiled again.
    """

    host: str | None = None
    sglang: str | None = None
    torch: str | None = None
    nccl: str | None = None
    python: str | None = None
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    topology: str | None = None
    kernel: str | None = None
    cpu: str | None = None
    caches: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON for a database column."""
        return asdict(self) | {"gpus": list(self.gpus)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`; ignores keys of newer versions."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        gpus, caches = tuple(data.get("gpus") or ()), dict(data.get("caches") or {})
        return cls(**known | {"gpus": gpus, "caches": caches})


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
