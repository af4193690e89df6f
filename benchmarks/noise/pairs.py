"""Difference of two configurations at one operating point, and the effect of pairing prompts."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.noise.variance import Estimate, MeanSquare, Split
from tuner.verdict.student_t import t_quantile

if TYPE_CHECKING:
    from benchmarks.noise.points import Cells, PointNoise

LAUNCHES = (2, 3, 5)
"""Launches of each side for which the smallest difference is told."""


@dataclass(frozen=True)
class PairNoise:
    """Noise of the difference between two configurations at one operating point.

    Attributes:
        first: First configuration.
        second: Second configuration.
        difference: Difference of the logarithms of mean tok/s, `second` minus `first`.
        apart: Deviation that one prompt adds to the difference, if the configurations have
            different prompts.
        together: The same if both configurations have the same prompt.
    """

    first: PointNoise
    second: PointNoise
    difference: float
    apart: Estimate
    together: Estimate

    @property
    def removed(self) -> float:
        """Share of the prompts' variance that pairing removes; negative if pairing adds some."""
        whole = self.apart.value**2
        return 1 - self.together.value**2 / whole if whole > 0 else math.nan

    def deviation(self, launches: int, *, prompts: str) -> float:
        """Return the deviation of the difference for a number of launches.

        A negative estimate of the launch component counts as 0: a few launch means can agree by
        chance, and the noise of the blocks remains.

        Args:
            launches: Launches of each configuration.
            prompts: `"these"`: only these prompts; `"same"`: new prompts, equal for both
                configurations; `"other"`: different prompts for each.
        """
        total = 0.0
        for point in (self.first, self.second):
            split = point.of_blocks["output_tok_s"]
            launch, block = (split.variance({name: 1.0}).value for name in ("launch", "block"))
            total += (launch + block / point.sizes[1]) / launches
        of_one = {"these": 0.0, "same": self.together.value, "other": self.apart.value}[prompts]
        return math.sqrt(total + of_one**2 / max(1, self.first.sizes[2]))

    def told_apart(self, launches: int, *, prompts: str) -> float:
        """Smallest difference outside a 95 % interval (Student, `2 (launches - 1)` degrees)."""
        return t_quantile(0.975, 2 * (launches - 1)) * self.deviation(launches, prompts=prompts)


def pair_noise(first: PointNoise, second: PointNoise) -> PairNoise:
    """Compute the noise of a difference; prompts add 0 if fewer than two are common."""
    splits = [point.of_requests.get("output_tok_s") for point in (first, second)]
    nothing = Estimate(0.0, 0.0, 0.0)
    difference = second.of_blocks["output_tok_s"].mean - first.of_blocks["output_tok_s"].mean
    a, b = splits
    means = [_of_prompts(point.cells) for point in (first, second)]
    common = sorted(set(means[0]) & set(means[1]))
    if a is None or b is None or len(common) < 2:
        return PairNoise(first, second, difference, nothing, nothing)
    spread = statistics.variance(means[1][p] - means[0][p] for p in common)
    both = Split(
        difference,
        {
            "difference": MeanSquare(spread, len(common) - 1),
            **{f"first {k}": a.squares[k] for k in ("prompt", "prompt_launch")},
            **{f"second {k}": b.squares[k] for k in ("prompt", "prompt_launch")},
        },
        # Each prompt's mean has the rest of its blocks in it, which is taken off.
        {
            "together": {
                "difference": 1.0,
                "first prompt_launch": -1 / math.prod(a.sizes[:2]),
                "second prompt_launch": -1 / math.prod(b.sizes[:2]),
            },
            "apart": {
                f"{which} {square}": weight
                for which, split in (("first", a), ("second", b))
                for square, weight in split.weights["prompt"].items()
            },
        },
        a.sizes,
    )
    return PairNoise(first, second, difference, both.deviation("apart"), both.deviation("together"))


def _of_prompts(cells: Cells) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for launch in cells:
        for block in launch:
            for prompt, request in block.items():
                values[prompt].append(request.log_tok_s)
    return {prompt: statistics.fmean(each) for prompt, each in values.items()}
