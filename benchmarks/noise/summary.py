"""Summary of the blocks of `python -m benchmarks.noise` by points, pairs and changes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.noise.changes import Disturbance, LongDrift, disturbances_of, long_drift
from benchmarks.noise.files import DRIFT, QUIET
from benchmarks.noise.pairs import PairNoise, pair_noise
from benchmarks.noise.points import PointNoise, point_noise
from benchmarks.noise.study import label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.noise.files import Block, Request

_Point = tuple[str, int]
"""A configuration's key and the concurrency."""


@dataclass(frozen=True)
class Summary:
    """All results of the files."""

    points: tuple[PointNoise, ...]
    pairs: tuple[PairNoise, ...]
    drifts: tuple[LongDrift, ...]
    disturbances: tuple[Disturbance, ...]
    too_few: tuple[str, ...]


def summarize(blocks: Sequence[Block], requests: Iterable[Request]) -> Summary:
    """Summarize blocks and requests; points with too few launches or blocks are listed."""
    cells: dict[tuple[str, int, int, int], dict[str, Request]] = defaultdict(dict)
    for request in requests:
        key = (request.configuration, request.concurrency, request.launch, request.block)
        cells[key][request.prompt] = request
    quiet: dict[_Point, list[Block]] = defaultdict(list)
    refused: dict[_Point, int] = defaultdict(int)
    drifting: dict[tuple[str, int, int], list[Block]] = defaultdict(list)
    disturbed: dict[_Point, dict[int, list[Block]]] = defaultdict(lambda: defaultdict(list))
    disturbed_launches = {b.launch for b in blocks if b.condition not in {QUIET, DRIFT}}
    for block in blocks:
        point = (block.configuration.key, block.concurrency)
        if block.condition == DRIFT:
            drifting[*point, block.launch].append(block)
        elif block.launch in disturbed_launches:
            disturbed[point][block.launch].append(block)
        elif block.failure:
            refused[point] += 1
        elif block.quiet_launch:
            quiet[point].append(block)
    points, too_few = [], []
    for point, found in quiet.items():
        try:
            points.append(point_noise(found, refused[point], cells))
        except ValueError as error:
            too_few.append(f"{label(found[0].configuration)}, {point[1]}: {error}")
    points.sort(key=lambda noise: noise.concurrency)
    return Summary(
        tuple(points),
        tuple(
            pair_noise(a, b)
            for a, b in itertools.combinations(points, 2)
            if a.concurrency == b.concurrency
        ),
        tuple(long_drift(found) for found in drifting.values() if len(found) > 3),
        tuple(d for launches in disturbed.values() for d in disturbances_of(launches)),
        tuple(too_few),
    )
