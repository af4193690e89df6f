"""Adaptive speculation: the draft steps follow the accept length and the batch size.

Batch sizes belong to tiers. Each tier has candidate steps and a running mean of correct drafts.

Source: SGLang 0.5.23, `srt/speculative/adaptive_spec_params.py`.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DEFAULT_TIERS: dict[int, dict[str, Any]] = {
    1: {"candidate_steps": [1, 3, 5, 7], "up_hysteresis": 0.0, "down_hysteresis": -0.25},
    8: {"candidate_steps": [0, 1, 3], "up_hysteresis": 0.0, "down_hysteresis": 0.0},
    32: {"candidate_steps": [0, 1], "up_hysteresis": 0.0, "down_hysteresis": 0.0},
    64: {"candidate_steps": [0], "up_hysteresis": 0.0, "down_hysteresis": 0.0},
}
"""SGLang's tiers without `--speculative-adaptive-config`, by their smallest batch size."""

GRAPH_BATCHES = (
    *(1, 2, 4, 8, 12),
    *range(16, 80, 8),
    *range(80, 128, 16),
    *range(128, 257, 32),
)
"""Batch sizes of the captured CUDA graphs; a batch counts as the next larger size."""


@dataclass(slots=True)
class Tier:
    """Steps of one range of batch sizes, with the state of their adaptation."""

    candidates: tuple[int, ...]
    steps: int
    mean: float
    alpha: float
    interval: int
    warm_up: int
    up: float
    down: float
    ceiling: float
    batches: int = 0

    def update(self, correct: Sequence[int]) -> bool:
        """Record the correct drafts of one verify, one per request; return whether steps change."""
        if not correct:
            return False
        if self.steps > 0:
            new = sum(correct) / len(correct)
            self.mean = (1.0 - self.alpha) * self.mean + self.alpha * new
        self.batches += 1
        since = self.batches - self.warm_up
        if since <= 0 or since % self.interval:
            return False
        before = self.steps
        self.steps = self._target()
        return self.steps != before

    def _target(self) -> int:
        at = self.candidates.index(self.steps)
        if self.steps == 0:
            # Try drafting again after an interval without it.
            target = self.candidates[min(at + 1, len(self.candidates) - 1)]
            if target > 0 and self.mean < 0:
                self.mean = float(target - 1)
            return target
        lower = at
        while lower > 0 and self.mean <= self._drop_to(self.candidates[lower - 1]):
            lower -= 1
        if lower == at:
            while at < len(self.candidates) - 1:
                if self.mean <= self.candidates[at] - 0.5 + self.up:
                    break
                at += 1
        else:
            at = lower
        target = self.candidates[at]
        if self.ceiling > 0 and target <= self.steps:
            most = max(1, math.ceil(self.mean * self.ceiling))
            while at > 0 and self.candidates[at] > most:
                at -= 1
            target = self.candidates[at]
        return target

    def _drop_to(self, steps: int) -> float:
        return (0.5 if steps == 0 else steps - 0.5) + self.down


class AdaptiveSteps:
    """Chooses the draft steps of every cycle.

    Args:
        initial_steps: `--speculative-num-steps`.
        config: The path of `--speculative-adaptive-config`, if any.
        log: Takes SGLang's message about a change.

    Raises:
        ValueError: The file has no tier, or a tier without candidate steps.
        OSError: The file cannot be read.
    """

    def __init__(
        self,
        initial_steps: int,
        config: str | Path | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        common, tiers = _read(config)
        self._log = log or (lambda _: None)
        self._sizes = sorted(tiers)
        self._tiers = {
            size: _tier(initial_steps, {**common, **entry}) for size, entry in tiers.items()
        }

    def steps(self, batch: int) -> int:
        return self._tier(batch).steps

    def verified(self, batch: int, correct: Sequence[int]) -> None:
        """Record the correct drafts of a cycle of `batch` requests."""
        tier = self._tier(batch)
        before = tier.steps
        if tier.update(correct):
            self._log(
                f"Adaptive spec params updated: steps {before} -> {tier.steps} "
                f"(ema_accept_len={tier.mean:.2f})"
            )

    def _tier(self, batch: int) -> Tier:
        at = bisect_left(GRAPH_BATCHES, batch)
        padded = GRAPH_BATCHES[at] if at < len(GRAPH_BATCHES) else batch
        return self._tiers[self._sizes[max(0, bisect_right(self._sizes, padded) - 1)]]


def adaptive_steps(
    values: Mapping[str, Any], initial_steps: int, log: Callable[[str], None] | None = None
) -> AdaptiveSteps | None:
    """Return the adaptive steps of the resolved flags; `None` without `--speculative-adaptive`."""
    if not values.get("speculative_adaptive"):
        return None
    return AdaptiveSteps(initial_steps, values.get("speculative_adaptive_config"), log)


def candidate_steps(config: str | Path | None) -> list[int]:
    """Return the steps of all tiers in ascending order; SGLang's tiers without a file.

    Raises:
        ValueError: The file has no tier, or a tier without candidate steps.
        OSError: The file cannot be read.
    """
    _, tiers = _read(config)
    return sorted({steps for entry in tiers.values() for steps in entry["candidate_steps"]})


def _tier(initial_steps: int, entry: Mapping[str, Any]) -> Tier:
    candidates = tuple(sorted(set(entry["candidate_steps"])))
    steps = initial_steps if initial_steps in candidates else candidates[len(candidates) // 2]
    return Tier(
        candidates=candidates,
        steps=steps,
        mean=float(steps - 1),
        alpha=float(entry.get("ema_alpha", 0.2)),
        interval=int(entry.get("update_interval", 5)),
        warm_up=int(entry.get("warmup_batches", 10)),
        up=float(entry.get("up_hysteresis", 0.0)),
        down=float(entry.get("down_hysteresis", -0.25)),
        ceiling=float(entry.get("ceiling_coeff", 0)),
    )


def _read(config: str | Path | None) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    if config is None:
        return {}, DEFAULT_TIERS
    data = json.loads(Path(config).read_text())
    if not isinstance(data, dict):
        raise ValueError(f"{config} must be a JSON object, got {data!r}")  # noqa: TRY004
    tiers: dict[int, dict[str, Any]] = {}
    for key, entry in data.items():
        if not key.isdigit():
            continue
        steps = entry.get("candidate_steps") if isinstance(entry, dict) else None
        if (
            not isinstance(steps, list)
            or not steps
            or not all(isinstance(s, int) and s >= 0 for s in steps)
        ):
            raise ValueError(
                f"BS {key}: candidate_steps must be a list of non-negative ints, got {steps!r}"
            )
        tiers[int(key)] = entry
    if not tiers:
        raise ValueError(
            "speculative_adaptive_config must contain at least one integer-string BS key, e.g. "
            f'{{"1": {{"candidate_steps": [1,3,7]}}}}. Got keys: {list(data.keys())}'
        )
    return {k: v for k, v in data.items() if not k.isdigit()}, tiers
