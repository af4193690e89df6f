"""Changes that `benchmarks.noise` finds: drift of a long launch, and effects of disturbances.

Changes are differences of logarithms, so they are shares of the figure (0.01 is 1 %).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.noise.files import QUIET
from benchmarks.noise.variance import Estimate, Trend, mean_of, trend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.noise.files import Block
    from search_spaces.configuration import Configuration


@dataclass(frozen=True)
class LongDrift:
    """Drift of a long launch.

    Attributes:
        configuration: Configuration of the launch.
        concurrency: Operating point.
        blocks: Number of blocks.
        seconds: Time from the first block to the last.
        trend: Trend of the logarithm of tok/s.
        quarters: Mean of each quarter relative to the first, minus 1.
        deviation: Standard deviation of single blocks.
    """

    configuration: Configuration
    concurrency: int
    blocks: int
    seconds: float
    trend: Trend
    quarters: tuple[float, ...]
    deviation: float


@dataclass(frozen=True)
class Disturbance:
    """Effect of a disturbance.

    Attributes:
        configuration: Measured configuration.
        concurrency: Operating point.
        condition: Name of the disturbance.
        cycles: Comparisons with the quiet blocks before and after.
        not_believed: Disturbed windows that the validity checks found invalid.
        tok_s: Change of the logarithm of tok/s.
        cycle_ms: Change of the logarithm of the time per verify.
    """

    configuration: Configuration
    concurrency: int
    condition: str
    cycles: int
    not_believed: int
    tok_s: Estimate
    cycle_ms: Estimate


def long_drift(found: Sequence[Block]) -> LongDrift:
    """Compute the drift over at least four ordered blocks of one long launch."""
    good = [block for block in found if not block.failure] or list(found)
    logs = [math.log(block.output_tok_s) for block in good]
    quarter = max(1, len(logs) // 4)
    means = [statistics.fmean(logs[n * quarter : (n + 1) * quarter] or logs) for n in range(4)]
    line = trend([[(b.started_at, y) for b, y in zip(good, logs, strict=True)]])
    return LongDrift(
        good[0].configuration,
        good[0].concurrency,
        len(good),
        good[-1].started_at - good[0].started_at,
        line,
        tuple(math.expm1(mean - means[0]) for mean in means),
        statistics.stdev(logs),
    )


def disturbances_of(launches: Mapping[int, Sequence[Block]]) -> list[Disturbance]:
    """Compute the effects in disturbed launches of one configuration at one point."""
    changes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    refused: dict[str, int] = defaultdict(int)
    one: Block | None = None
    for blocks in launches.values():
        for cycle in _cycles(sorted(blocks, key=lambda block: block.block)):
            one = cycle[0]
            quiet = [b for b in (cycle[0], cycle[-1]) if not b.failure]
            for block in cycle[1:-1]:
                # Refused for what was done to it, it says the most: it is counted and compared.
                refused[block.condition] += bool(block.failure)
                if quiet and block.output_tok_s > 0:
                    changes[block.condition].append(
                        (
                            _change(block, quiet, lambda b: b.output_tok_s),
                            _change(block, quiet, lambda b: b.cycle_ms),
                        )
                    )
    if one is None:
        return []
    return [
        Disturbance(
            one.configuration,
            one.concurrency,
            condition,
            len(found),
            refused[condition],
            mean_of([tok_s for tok_s, _ in found]),
            mean_of([cycle for _, cycle in found if not math.isnan(cycle)] or [math.nan]),
        )
        for condition, found in changes.items()
    ]


def _cycles(blocks: Sequence[Block]) -> list[list[Block]]:
    """Split blocks into cycles, each from an opening to a closing quiet block."""
    cycles: list[list[Block]] = []
    open_cycle: list[Block] = []
    for block in blocks:
        if block.condition == QUIET and len(open_cycle) > 1:
            cycles.append([*open_cycle, block])
            open_cycle = []
        elif block.condition == QUIET:
            open_cycle = [block]
        elif open_cycle:
            open_cycle.append(block)
    return cycles


def _change(block: Block, quiet: Sequence[Block], of: Callable[[Block], float]) -> float:
    if not of(block) > 0:
        return math.nan  # no stream, no cycles
    return math.log(of(block)) - statistics.fmean(math.log(of(each)) for each in quiet)
