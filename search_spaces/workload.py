"""What a server is measured with: prompts, output length and operating points."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_PREFIX_TOKENS = 2**24
"""Of one shared prefix: more than any model's context."""

MOST_PREFIX_GROUPS = 100_000

DEFAULT_OUTPUT_SPREAD = 0.5
"""Of answer lengths around their mean, where a study does not say otherwise."""


def path_from(base_dir: Path | str, written: str) -> Path:
    """A path as users write it: from `base_dir` on, or from a home directory (`~`)."""
    try:
        return Path(base_dir) / Path(written).expanduser()
    except RuntimeError:  # nobody has that name: a file of this name there is none either
        return Path(base_dir) / written


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """How a server is loaded in one measurement: a closed loop, or an open one.

    Exactly one of `concurrency`, `request_rate` and `trace` is given.

    Attributes:
        concurrency: Requests in flight (closed loop).
        weight: Share of this point in the score's geometric mean.
        requests: Prompts of one window; `None` lets the load generator choose
            (`Workload.requests_at`).
        request_rate: Requests per second of the server's own time, arriving as a Poisson process
            (open loop).
        trace: Path of a file of arrival times (open loop).
    """

    concurrency: int | None = None
    weight: float = 1.0
    requests: int | None = None
    request_rate: float | None = None
    trace: str | None = None

    def __post_init__(self) -> None:
        given = (self.concurrency, self.request_rate, self.trace)
        if sum(value is not None for value in given) != 1:
            raise ValueError("an operating point has a concurrency, a request_rate or a trace")

    @property
    def is_open(self) -> bool:
        """Whether requests arrive by themselves, whatever the server does (open loop)."""
        return self.concurrency is None

    @property
    def name(self) -> str:
        """How reports call it: `concurrency 8`, `4 requests/s`, `trace day.jsonl`."""
        if self.concurrency is not None:
            return f"concurrency {self.concurrency}"
        if self.request_rate is not None:
            return f"{self.request_rate:g} requests/s"
        return f"trace {self.trace}"

    def to_dict(self) -> dict[str, Any]:
        """The identity of the point, as reports show it."""
        if self.concurrency is not None:
            return {"concurrency": self.concurrency}
        if self.request_rate is not None:
            return {"request_rate": self.request_rate}
        return {"trace": self.trace}


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Controlled prefix sharing, as a common system prompt or document gives it.

    Attributes:
        tokens: Length of each prefix, in tokens of the model (words where they are not known).
        groups: Different prefixes; the prompts of a window are dealt out to them evenly.
    """

    tokens: int
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Goodput:
    """Limits that a request must keep to count as good; `None` is no limit.

    Attributes:
        ttft_ms: Time to first token.
        tpot_ms: Time per output token after the first.
        e2e_ms: Time to last token.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """The load of a study, the same for every configuration.

    Attributes:
        prompts: Prompt sources and their shares, sorted by name; shares sum to 1. A source is a
            built-in set's name (`chat`), or `jsonl:PATH`, `sharegpt:PATH`, `sglang:DATASET`.
        output_tokens: Mean tokens per answer (`ignore_eos`), or the longest where
            `natural_length`.
        points: Operating points, in the order in which they are measured.
        output_spread: Largest deviation of an answer's length from `output_tokens`, as a share of
            it; 0 makes all answers equally long.
        temperature: Sampling temperature; 0 is greedy.
        requests: Prompts per window at concurrency 1; windows at concurrency c use
            `max(requests, 4 * c)`.
        warmup_requests: Requests sent and forgotten before each window, per unit of concurrency.
        sampling: Further sampling parameters by SGLang's names (`top_p`, `top_k`, ...), sorted.
        natural_length: Whether answers end where the model ends them.
        shared_prefix: Prefixes put before the prompts; `None` shares nothing on purpose.
        goodput: Limits under which requests count as good; `None` counts none.
        request_timeout_s: Longest that one request may take, in real seconds; `None` leaves it to
            the load generator.
        base_dir: Folder that relative paths start from (files of prompts, traces): the study
            file's own. Where a workload lies is no part of what it is, so it does not count when
            two are compared.
    """

    prompts: tuple[tuple[str, float], ...]
    output_tokens: int
    points: tuple[OperatingPoint, ...]
    output_spread: float = 0.0
    temperature: float = 0.0
    requests: int = 16
    warmup_requests: int = 1
    sampling: tuple[tuple[str, float | int], ...] = ()
    natural_length: bool = False
    shared_prefix: SharedPrefix | None = None
    goodput: Goodput | None = None
    request_timeout_s: float | None = None
    base_dir: str = field(default="", compare=False)

    def path(self, written: str) -> Path:
        """A path as the workload writes it, from its `base_dir` on."""
        return path_from(self.base_dir, written)

    def requests_at(self, point: OperatingPoint) -> int:
        """Prompts in one window at `point`: enough that ramp and drain do not rule it."""
        if point.requests is not None:
            return point.requests
        return max(self.requests, 4 * (point.concurrency or 1))

    def warmup_at(self, point: OperatingPoint) -> int:
        """Prompts of one pass of the warm-up at `point`."""
        return self.warmup_requests * (point.concurrency or 1)

    def ramp_at(self, point: OperatingPoint) -> int:
        """Requests before the window of a closed loop, one for each of its lanes.

        A loop with a single lane needs none.
        """
        lanes = min(point.concurrency or 1, self.requests_at(point))
        return lanes if lanes > 1 else 0

    def prompts_at(self, point: OperatingPoint) -> int:
        """Distinct prompts that one measurement at `point` sends; ramp and warm-up share theirs."""
        return self.requests_at(point) + max(self.ramp_at(point), self.warmup_at(point))
