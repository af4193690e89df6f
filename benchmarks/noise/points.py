"""Variance components of one configuration at one operating point.

Figures are compared as logarithms, so deviations and differences are shares of the figure (0.01 is
1 %).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.noise.variance import Estimate, Split, Trend, crossed, nested, trend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.noise.files import Block, Request
    from search_spaces.configuration import Configuration

OF_BLOCKS: dict[str, Callable[[Block], float | None]] = {
    "output_tok_s": lambda block: block.output_tok_s,
    "cycle_ms": lambda block: block.cycle_ms,
    "accept_length": lambda block: block.accept_length,
    "ttft_p50_ms": lambda block: block.ttft_p50_ms,
}
OF_REQUESTS: dict[str, Callable[[Request], float]] = {
    "output_tok_s": lambda request: request.log_tok_s,
    "cycle_ms": lambda request: request.log_cycle_ms,
}
Cells = list[list[dict[str, "Request"]]]
"""Requests by prompt, of each block of each launch."""


@dataclass(frozen=True)
class PointNoise:
    """Noise of one configuration at one operating point.

    Attributes:
        configuration: Measured configuration.
        concurrency: Operating point.
        sizes: Launches, blocks per launch, and prompts that all blocks have.
        left_out: Invalid blocks, and blocks that not all launches have.
        means: Geometric means of the blocks' figures.
        of_blocks: Components `launch` and `block` of a block's figure, by figure.
        of_requests: Components of a single request's figure, by figure.
        cells: Requests by launch, block and prompt.
        drift: Drift of tok/s within launches.
        span_s: Mean time from a launch's first block to its last.
        client_cpu_share: Largest CPU share of a client process in any block.
    """

    configuration: Configuration
    concurrency: int
    sizes: tuple[int, int, int]
    left_out: int
    means: Mapping[str, float]
    of_blocks: Mapping[str, Split]
    of_requests: Mapping[str, Split]
    cells: Cells
    drift: Trend | None
    span_s: float
    client_cpu_share: float

    @property
    def same_prompts(self) -> Estimate:
        """Deviation of one window's tok/s from the configuration's mean, for these prompts."""
        return self.of_blocks["output_tok_s"].deviation({"launch": 1.0, "block": 1.0})

    @property
    def other_prompts(self) -> float:
        """The same deviation if each window draws new prompts."""
        return math.sqrt(self.same_prompts.value**2 + self.prompt_variance / max(1, self.sizes[2]))

    @property
    def prompt_variance(self) -> float:
        """Variance of a prompt's tok/s; 0 if single requests are unknown."""
        split = self.of_requests.get("output_tok_s")
        return split.variance({"prompt": 1.0}).value if split is not None else 0.0


def balanced(launches: Sequence[Sequence[Block]]) -> list[list[Block]]:
    """Select the first blocks of each launch, so that all launches have equally many.

    Raises:
        ValueError: Fewer than two launches have two blocks.
    """
    best: list[list[Block]] = []
    for size in sorted({len(each) for each in launches}):
        kept = [list(each[:size]) for each in launches if len(each) >= size]
        if size > 1 and len(kept) > 1 and len(kept) * size > sum(map(len, best)):
            best = kept
    if not best:
        sizes = [len(each) for each in launches]
        raise ValueError(f"components need two launches of two blocks, and these have {sizes}")
    return best


def point_noise(
    found: Sequence[Block],
    refused: int,
    requests: Mapping[tuple[str, int, int, int], dict[str, Request]],
) -> PointNoise:
    """Compute the noise of a point.

    Args:
        found: Valid blocks.
        refused: Number of invalid blocks.
        requests: Requests by prompt, for each configuration key, concurrency, launch and block.

    Raises:
        ValueError: Fewer than two launches have two blocks.
    """
    by_launch: dict[int, list[Block]] = defaultdict(list)
    for block in found:
        by_launch[block.launch].append(block)
    used = balanced(list(by_launch.values()))
    first = used[0][0]
    key = (first.configuration.key, first.concurrency)
    cells = _of_all([[requests.get((*key, b.launch, b.block), {}) for b in each] for each in used])
    of_blocks = _splits_of_blocks(used)
    return PointNoise(
        first.configuration,
        first.concurrency,
        (len(used), len(used[0]), len(cells[0][0])),
        refused + len(found) - sum(map(len, used)),
        {name: math.exp(split.mean) for name, split in of_blocks.items()},
        of_blocks,
        _splits_of_requests(cells),
        cells,
        _drift(used),
        statistics.fmean(each[-1].started_at - each[0].started_at for each in used),
        max(block.client_cpu_share for each in used for block in each),
    )


def _of_all(cells: Cells) -> Cells:
    """Select the requests of prompts that all blocks have."""
    common = sorted(set.intersection(*(set(cell) for each in cells for cell in each)))
    return [[{prompt: cell[prompt] for prompt in common} for cell in each] for each in cells]


def _splits_of_blocks(launches: Sequence[Sequence[Block]]) -> dict[str, Split]:
    """Split the variance of each figure that all blocks have."""
    splits = {}
    for name, read in OF_BLOCKS.items():
        values = [[read(block) for block in each] for each in launches]
        logs = [[math.log(v) for v in each if v is not None and v > 0] for each in values]
        if all(len(each) == len(launches[0]) for each in logs):
            splits[name] = nested(logs)
    return splits


def _splits_of_requests(cells: Cells) -> dict[str, Split]:
    """Split the variance of each figure; empty for fewer than two prompts."""
    if len(cells[0][0]) < 2:
        return {}
    return {
        name: crossed([[[of(r) for r in cell.values()] for cell in each] for each in cells])
        for name, of in OF_REQUESTS.items()
    }


def _drift(launches: Sequence[Sequence[Block]]) -> Trend | None:
    try:
        return trend(
            [[(b.started_at, math.log(b.output_tok_s)) for b in blocks] for blocks in launches]
        )
    except ValueError:
        return None
