"""What a server is measured with: prompts, output length and operating points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """How a server is loaded in one measurement.

    Attributes:
        concurrency: Requests in flight (closed loop).
        weight: Share of this point in the score's geometric mean.
        requests: Prompts of one window; `None` lets the load generator choose
            (`Workload.requests_at`).
    """

    concurrency: int
    weight: float = 1.0
    requests: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The identity of the point, as reports show it."""
        return {"concurrency": self.concurrency}


@dataclass(frozen=True, slots=True)
class Workload:
    """The load of a study, the same for every configuration.

    Attributes:
        prompts: Built-in prompt set names and their shares, sorted by name; shares sum to 1.
        output_tokens: Tokens per answer; a fixed length (`ignore_eos`).
        points: Operating points, in the order in which they are measured.
        temperature: Sampling temperature; 0 is greedy.
        requests: Prompts per window at concurrency 1; windows at concurrency c use
            `max(requests, 4 * c)`.
        warmup_requests: Requests sent and forgotten before each window, per unit of concurrency.
    """

    prompts: tuple[tuple[str, float], ...]
    output_tokens: int
    points: tuple[OperatingPoint, ...]
    temperature: float = 0.0
    requests: int = 16
    warmup_requests: int = 1

    def requests_at(self, point: OperatingPoint) -> int:
        """Prompts in one window at `point`: enough that ramp and drain do not rule it."""
        if point.requests is not None:
            return point.requests
        return max(self.requests, 4 * point.concurrency)
