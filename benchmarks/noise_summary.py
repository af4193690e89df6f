"""What the blocks of `benchmarks.noise` say: where variance comes from, and pairs.

Figures are compared as logarithms, so standard deviations and differences are parts of the figure
(0.01 is 1 %).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.noise_changes import Disturbance, LongDrift, disturbances_of, long_drift
from benchmarks.noise_files import DRIFT, QUIET
from benchmarks.noise_study import label
from benchmarks.variance import (
    Estimate,
    MeanSquare,
    Split,
    Trend,
    crossed,
    nested,
    t_quantile,
    trend,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.noise_files import Block, Request
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
_Key = tuple[str, int]
_Cells = list[list[dict[str, "Request"]]]


@dataclass(frozen=True)
class PointNoise:
    """The noise of one configuration at one operating point.

    Attributes:
        configuration: What ran.
        concurrency: The operating point.
        sizes: Launches, blocks of each, and prompts of a block that are in every block.
        left_out: Blocks that were not believed, or in excess of what all launches have.
        means: Geometric means of the blocks' figures.
        of_blocks: Components `launch` and `block` of a block's figure, by figure.
        of_requests: Components of a single request's figure, by figure.
        cells: The requests, by launch, block and prompt.
        drift: Of tok/s within launches.
        span_s: Seconds from a launch's first block to its last, on the average.
        client_cpu_share: Most that a client process used in any block.
    """

    configuration: Configuration
    concurrency: int
    sizes: tuple[int, int, int]
    left_out: int
    means: Mapping[str, float]
    of_blocks: Mapping[str, Split]
    of_requests: Mapping[str, Split]
    cells: _Cells
    drift: Trend | None
    span_s: float
    client_cpu_share: float

    @property
    def same_prompts(self) -> Estimate:
        """Deviation of one window's tok/s from the configuration's, for these prompts."""
        return self.of_blocks["output_tok_s"].deviation({"launch": 1.0, "block": 1.0})

    @property
    def other_prompts(self) -> float:
        """The same where each window draws prompts of its own."""
        return math.sqrt(self.same_prompts.value**2 + self.prompt_variance / self.sizes[2])

    @property
    def prompt_variance(self) -> float:
        """Variance of a prompt's own tok/s; 0 where requests cannot be told apart."""
        split = self.of_requests.get("output_tok_s")
        return split.variance({"prompt": 1.0}).value if split is not None else 0.0


@dataclass(frozen=True)
class PairNoise:
    """Two configurations at one operating point.

    Attributes:
        first: One.
        second: The other.
        difference: Of the logarithms of their blocks' mean tok/s, `second` less `first`.
        apart: Deviation of what prompts do to that difference, where each has its own: one prompt.
        together: The same where both have the same prompt.
    """

    first: PointNoise
    second: PointNoise
    difference: float
    apart: Estimate
    together: Estimate

    @property
    def removed(self) -> float:
        """Share of the prompts' variance that pairing removes; below 0 if it adds some."""
        whole = self.apart.value**2
        return 1 - self.together.value**2 / whole if whole > 0 else math.nan

    def deviation(self, launches: int, *, prompts: str) -> float:
        """Of the difference, after so many launches of each with the blocks that were measured.

        Args:
            launches: Of each configuration.
            prompts: `"these"`: of these prompts alone; `"same"`: of such prompts, both
                configurations with the same ones; `"other"`: each with its own.
        """
        total = 0.0
        for point in (self.first, self.second):
            split = point.of_blocks["output_tok_s"]
            parts = {"launch": 1 / launches, "block": 1 / launches / point.sizes[1]}
            total += split.variance(parts).value
        of_one = {"these": 0.0, "same": self.together.value, "other": self.apart.value}[prompts]
        return math.sqrt(total + of_one**2 / self.first.sizes[2])

    def told_apart(self, launches: int, *, prompts: str) -> float:
        """The smallest difference outside a 95 % interval (Student, `2 (launches - 1)` degrees)."""
        return t_quantile(0.975, 2 * (launches - 1)) * self.deviation(launches, prompts=prompts)


@dataclass(frozen=True)
class Summary:
    """Everything that the files say."""

    points: tuple[PointNoise, ...]
    pairs: tuple[PairNoise, ...]
    drifts: tuple[LongDrift, ...]
    disturbances: tuple[Disturbance, ...]
    too_few: tuple[str, ...]


def summarize(blocks: Sequence[Block], requests: Iterable[Request]) -> Summary:
    """Reads blocks and requests; points with fewer than two launches of two blocks are named."""
    cells: dict[tuple[str, int, int, int], dict[str, Request]] = defaultdict(dict)
    for request in requests:
        key = (request.configuration, request.concurrency, request.launch, request.block)
        cells[key][request.prompt] = request
    quiet: dict[_Key, list[Block]] = defaultdict(list)
    refused: dict[_Key, int] = defaultdict(int)
    drifting: dict[tuple[str, int, int], list[Block]] = defaultdict(list)
    disturbed: dict[_Key, dict[int, list[Block]]] = defaultdict(lambda: defaultdict(list))
    disturbed_launches = {b.launch for b in blocks if b.condition not in {QUIET, DRIFT}}
    for block in blocks:
        key2 = (block.configuration.key, block.concurrency)
        if block.condition == DRIFT:
            drifting[*key2, block.launch].append(block)
        elif block.launch in disturbed_launches:
            disturbed[key2][block.launch].append(block)
        elif block.failure:
            refused[key2] += 1
        elif block.quiet_launch:
            quiet[key2].append(block)
    points, too_few = [], []
    for key2, found in quiet.items():
        try:
            points.append(_point(found, refused[key2], cells))
        except ValueError as error:
            too_few.append(f"{label(found[0].configuration)}, {key2[1]}: {error}")
    points.sort(key=lambda point: point.concurrency)
    return Summary(
        tuple(points),
        tuple(
            _pair(a, b)
            for a, b in itertools.combinations(points, 2)
            if a.concurrency == b.concurrency
        ),
        tuple(long_drift(found) for found in drifting.values() if len(found) > 3),
        tuple(d for launches in disturbed.values() for d in disturbances_of(launches)),
        tuple(too_few),
    )


def balanced(launches: Sequence[Sequence[Block]]) -> list[list[Block]]:
    """The most blocks that as many launches have: the first ones of each.

    Raises:
        ValueError: No two launches have two.
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


def _point(
    found: Sequence[Block],
    refused: int,
    cells: Mapping[tuple[str, int, int, int], dict[str, Request]],
) -> PointNoise:
    by_launch: dict[int, list[Block]] = defaultdict(list)
    for block in found:
        by_launch[block.launch].append(block)
    used = balanced(list(by_launch.values()))
    first = used[0][0]
    key = (first.configuration.key, first.concurrency)
    requests = [[cells.get((*key, b.launch, b.block), {}) for b in each] for each in used]
    common = set.intersection(*(set(cell) for each in requests for cell in each))
    of_requests = {}
    if len(common) > 1:
        requests = [[{p: cell[p] for p in sorted(common)} for cell in each] for each in requests]
        for name, of in OF_REQUESTS.items():
            of_requests[name] = crossed(
                [[[of(r) for r in cell.values()] for cell in each] for each in requests]
            )
    of_blocks, means = {}, {}
    for name, read in OF_BLOCKS.items():
        values = [[read(block) for block in each] for each in used]
        logs = [[math.log(v) for v in each if v is not None and v > 0] for each in values]
        if all(len(each) == len(used[0]) for each in logs):
            of_blocks[name] = nested(logs)
            means[name] = math.exp(of_blocks[name].mean)
    return PointNoise(
        first.configuration,
        first.concurrency,
        (len(used), len(used[0]), len(common)),
        refused + len(found) - sum(map(len, used)),
        means,
        of_blocks,
        of_requests,
        requests,
        _drift(used),
        statistics.fmean(each[-1].started_at - each[0].started_at for each in used),
        max(block.client_cpu_share for each in used for block in each),
    )


def _drift(launches: Sequence[Sequence[Block]]) -> Trend | None:
    try:
        return trend(
            [[(b.started_at, math.log(b.output_tok_s)) for b in blocks] for blocks in launches]
        )
    except ValueError:
        return None


def _pair(first: PointNoise, second: PointNoise) -> PairNoise:
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


def _of_prompts(cells: _Cells) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for launch in cells:
        for block in launch:
            for prompt, request in block.items():
                values[prompt].append(request.log_tok_s)
    return {prompt: statistics.fmean(each) for prompt, each in values.items()}
