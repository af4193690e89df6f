"""The load of a study: prompts, output lengths and operating points."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_PREFIX_TOKENS = 2**24
"""Limit of `SharedPrefix.tokens`; more than any model's context."""

MOST_PREFIX_GROUPS = 100_000

DEFAULT_OUTPUT_SPREAD = 0.5
"""Default relative spread of answer lengths."""


def path_from(base_dir: Path | str, written: str) -> Path:
    """Resolve a path relative to `base_dir`; `~` is a home directory."""
    try:
        return Path(base_dir) / Path(written).expanduser()
    except RuntimeError:  # no user has this name
        return Path(base_dir) / written


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """The load of one measurement, a closed or an open loop.

    Exactly one of `concurrency`, `request_rate` and `trace` is given.

    Attributes:
        concurrency: Requests in flight (closed loop).
        weight: Share of this point in the score's geometric mean.
        requests: Requests of one window; `None` is the default of `Workload.requests_at`.
        request_rate: Requests per second of server time, as a Poisson process (open loop).
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
        """Whether arrivals are independent of the server (open loop)."""
        return self.concurrency is None

    @property
    def name(self) -> str:
        """The name in reports: `concurrency 8`, `4 requests/s`, `trace day.jsonl`."""
        if self.concurrency is not None:
            return f"concurrency {self.concurrency}"
        if self.request_rate is not None:
            return f"{self.request_rate:g} requests/s"
        return f"trace {self.trace}"

    def to_dict(self) -> dict[str, Any]:
        """The identity of the point in reports and JSON."""
        if self.concurrency is not None:
            return {"concurrency": self.concurrency}
        if self.request_rate is not None:
            return {"request_rate": self.request_rate}
        return {"trace": self.trace}


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Prefixes shared by prompts, such as a common system prompt or document.

    Attributes:
        tokens: Length of each prefix in tokens; in words where the tokenizer is unknown.
        groups: Number of prefixes; each gets the same share of the prompts.
    """

    tokens: int
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Goodput:
    """Limits of a good request; `None` is no limit.

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
    """The load of a study; equal for every configuration.

    Attributes:
        prompts: Prompt sources (`search_spaces.prompt_names`) with shares that sum to 1, sorted.
        output_tokens: Mean tokens per answer; the maximum with `natural_length`.
        points: Operating points, in the order of measurement.
        output_spread: Largest relative deviation of an answer's length from `output_tokens`.
        temperature: Sampling temperature; 0 is greedy.
        requests: Requests per window; at concurrency c at least 4 c.
        warmup_requests: Warm-up requests before each window, per unit of concurrency.
        sampling: Further sampling parameters by SGLang's names (`top_p`, `top_k`, ...), sorted.
        natural_length: Whether the model ends the answers.
        shared_prefix: Prefixes before the prompts, if any.
        goodput: Limits of good requests; `None` counts no goodput.
        request_timeout_s: Timeout of a request in real seconds; `None` is the load generator's.
        base_dir: Folder of relative paths (prompt files, traces); ignored in comparisons.
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
        """Resolve a path of the workload relative to `base_dir`."""
        return path_from(self.base_dir, written)

    def requests_at(self, point: OperatingPoint) -> int:
        """Requests in one window at `point`: enough that ramp and drain do not dominate."""
        if point.requests is not None:
            return point.requests
        return max(self.requests, 4 * (point.concurrency or 1))

    def warmup_at(self, point: OperatingPoint) -> int:
        """Requests of one pass of the warm-up at `point`."""
        return self.warmup_requests * (point.concurrency or 1)

    def ramp_at(self, point: OperatingPoint) -> int:
        """Requests before the window of a closed loop: one per lane, none for a single lane."""
        lanes = min(point.concurrency or 1, self.requests_at(point))
        return lanes if lanes > 1 else 0

    def prompts_at(self, point: OperatingPoint) -> int:
        """Distinct prompts of one measurement at `point`; ramp and warm-up share prompts."""
        return self.requests_at(point) + max(self.ramp_at(point), self.warmup_at(point))
