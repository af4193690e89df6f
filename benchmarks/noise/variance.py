"""Variance components of balanced measurements, with limits that are honest for few launches.

Estimates are those of the analysis of variance: mean squares set equal to their expectations
(Searle, Casella and McCulloch, "Variance Components", 1992, chapter 4), which need no normal
distribution. Limits are generalized confidence intervals (Weerahandi 1993; Burdick, Borror and
Montgomery, "Design and Analysis of Gauge R&R Studies", 2005, appendix B): each mean square is
divided by draws of its chi-square over its degrees of freedom, and every function of components
read off the same draws. With three launches a launch component has two degrees of freedom, and its
upper limit is several times the estimate: that is what three launches know.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tuner.verdict.student_t import mean_interval, t_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DRAWS = 4000
LEVEL = 0.90
"""Of the limits: each of the two is missed by 5 % of experiments, if effects are normal."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its limits at `LEVEL`."""

    value: float
    low: float
    high: float

    def map(self, function: Callable[[float], float]) -> Estimate:
        """All three through an increasing function."""
        return Estimate(function(self.value), function(self.low), function(self.high))

    def to_dict(self) -> dict[str, float | None]:
        """As JSON has it: no limit is null."""
        named = {"value": self.value, "low": self.low, "high": self.high}
        return {name: each if math.isfinite(each) else None for name, each in named.items()}


@dataclass(frozen=True, slots=True)
class MeanSquare:
    """A mean square and its degrees of freedom."""

    value: float
    df: int


@dataclass(frozen=True)
class Split:
    """Where the variance of a figure comes from.

    Attributes:
        mean: Of all.
        squares: Mean squares by name.
        weights: Each component as a sum of mean squares: their factors by name.
        sizes: Launches, blocks per launch and, where they were told apart, prompts.
    """

    mean: float
    squares: Mapping[str, MeanSquare]
    weights: Mapping[str, Mapping[str, float]]
    sizes: tuple[int, ...]

    def variance(self, parts: Mapping[str, float]) -> Estimate:
        """The variance of a sum of components, `parts` of each; never below 0.

        The estimate of one component can come out negative, when it is smaller than what hides
        it: then it is 0, and its upper limit says up to where it could be.
        """
        factors: dict[str, float] = {}
        for component, share in parts.items():
            for square, weight in self.weights[component].items():
                factors[square] = factors.get(square, 0.0) + share * weight
        value = sum(factor * self.squares[name].value for name, factor in factors.items())
        drawn = sorted(
            sum(
                factor * self.squares[name].value / self._chi_squares[name][n]
                for name, factor in factors.items()
            )
            for n in range(DRAWS)
        )
        tail = (1 - LEVEL) / 2
        low, high = drawn[int(tail * DRAWS)], drawn[math.ceil((1 - tail) * DRAWS) - 1]
        return Estimate(*(max(0.0, each) for each in (value, low, high)))

    def deviation(self, parts: Mapping[str, float] | str) -> Estimate:
        """The square root of `variance`; of one component by its name."""
        whole = {parts: 1.0} if isinstance(parts, str) else parts
        return self.variance(whole).map(math.sqrt)

    @cached_property
    def _chi_squares(self) -> dict[str, list[float]]:
        """Draws of chi-square over degrees of freedom; the same whenever it is asked."""
        rng = random.Random(0)
        return {
            name: [rng.gammavariate(square.df / 2, 2) / square.df for _ in range(DRAWS)]
            for name, square in self.squares.items()
        }


def nested(figures: Sequence[Sequence[float]]) -> Split:
    """Launches, and blocks within them: `launch` and `block`.

    Args:
        figures: One per launch and block.

    Raises:
        ValueError: Fewer than two launches or blocks, or not the same blocks in each.
    """
    launches, blocks = len(figures), _size(figures)
    means = [statistics.fmean(each) for each in figures]
    mean = statistics.fmean(means)
    between = blocks * sum((each - mean) ** 2 for each in means) / (launches - 1)
    df = launches * (blocks - 1)
    within = sum(
        (figure - of_launch) ** 2
        for each, of_launch in zip(figures, means, strict=True)
        for figure in each
    )
    return Split(
        mean,
        {"launch": MeanSquare(between, launches - 1), "block": MeanSquare(within / df, df)},
        {
            "launch": {"launch": 1 / blocks, "block": -1 / blocks},
            "block": {"block": 1.0},
        },
        (launches, blocks),
    )


def crossed(figures: Sequence[Sequence[Sequence[float]]]) -> Split:
    """Blocks within launches, and in each block the same prompts.

    The components: `prompt` (some prompts are faster than others, in every launch), `launch`,
    `block`, `prompt_launch` (what a prompt gains or loses in one launch) and `residual` (in one
    block).

    Args:
        figures: One per launch, block and prompt.

    Raises:
        ValueError: Fewer than two of any, or not the same blocks and prompts everywhere.
    """
    n, b = len(figures), _size(figures)
    k = _size([block for launch in figures for block in launch])
    mean = statistics.fmean(y for launch in figures for block in launch for y in block)
    of_block = [[statistics.fmean(block) for block in launch] for launch in figures]
    of_launch = [statistics.fmean(each) for each in of_block]
    cell = [[statistics.fmean(ys) for ys in zip(*launch, strict=True)] for launch in figures]
    of_prompt = [statistics.fmean(ys) for ys in zip(*cell, strict=True)]
    ss_launch = b * k * sum((y - mean) ** 2 for y in of_launch)
    ss_prompt = n * b * sum((y - mean) ** 2 for y in of_prompt)
    ss_block = k * sum((y - of_launch[i]) ** 2 for i, blocks in enumerate(of_block) for y in blocks)
    ss_both = b * sum(
        (y - of_launch[i] - of_prompt[p] + mean) ** 2
        for i, prompts in enumerate(cell)
        for p, y in enumerate(prompts)
    )
    ss_rest = sum(
        (y - of_block[i][j] - cell[i][p] + of_launch[i]) ** 2
        for i, launch in enumerate(figures)
        for j, block in enumerate(launch)
        for p, y in enumerate(block)
    )
    dfs = {
        "prompt": k - 1,
        "launch": n - 1,
        "block": n * (b - 1),
        "prompt_launch": (k - 1) * (n - 1),
        "residual": n * (b - 1) * (k - 1),
    }
    sums = dict(
        zip(dfs, (ss_prompt, ss_launch, ss_block, ss_both, ss_rest), strict=True),
    )
    return Split(
        mean,
        {name: MeanSquare(sums[name] / df, df) for name, df in dfs.items()},
        {
            "prompt": {"prompt": 1 / (n * b), "prompt_launch": -1 / (n * b)},
            "launch": {
                "launch": 1 / (b * k),
                "block": -1 / (b * k),
                "prompt_launch": -1 / (b * k),
                "residual": 1 / (b * k),
            },
            "block": {"block": 1 / k, "residual": -1 / k},
            "prompt_launch": {"prompt_launch": 1 / b, "residual": -1 / b},
            "residual": {"residual": 1.0},
        },
        (n, b, k),
    )


def _size(items: Sequence[Sequence[object]]) -> int:
    """The common length of at least two lists, itself at least two."""
    sizes = {len(each) for each in items}
    if len(items) < 2 or len(sizes) != 1 or min(sizes) < 2:
        raise ValueError(
            f"components need at least 2 of everything, as many everywhere: "
            f"{len(items)} lists of {sorted(sizes)}"
        )
    return sizes.pop()


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through figures over time, each launch with a level of its own.

    Attributes:
        slope: Change per second, with limits.
        after: Correlation of what is left of neighbouring blocks: clearly above 0, they are not
            independent, and the limits are too narrow.
    """

    slope: Estimate
    after: float


def trend(launches: Sequence[Sequence[tuple[float, float]]]) -> Trend:
    """The common slope of figures over time within launches.

    Args:
        launches: Of each launch pairs of time (seconds) and figure.

    Raises:
        ValueError: Too few to have a slope and something left over.
    """
    centred = [_centred(each) for each in launches if len(each) > 1]
    points = [point for each in centred for point in each]
    df = len(points) - len(centred) - 1
    spread = sum(t * t for t, _ in points)
    if df < 1 or spread <= 0:
        raise ValueError(f"{len(points)} blocks in {len(launches)} launches have no slope")
    slope = sum(t * y for t, y in points) / spread
    rests = [[y - slope * t for t, y in each] for each in centred]
    error = math.sqrt(sum(r * r for each in rests for r in each) / df / spread)
    half = t_quantile(1 - (1 - LEVEL) / 2, df) * error
    whole = sum(r * r for each in rests for r in each)
    after = sum(a * b for each in rests for a, b in itertools.pairwise(each))
    return Trend(Estimate(slope, slope - half, slope + half), after / whole if whole > 0 else 0.0)


def _centred(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    times = statistics.fmean(t for t, _ in points)
    figures = statistics.fmean(y for _, y in points)
    return [(t - times, y - figures) for t, y in points]


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of independent values, with Student's limits; without limits of a single one."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, -math.inf, math.inf)
    return Estimate(mean, *mean_interval(values, LEVEL))
