"""JSON of a summary of `benchmarks.noise`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from benchmarks.noise.pairs import LAUNCHES
from benchmarks.noise.variance import LEVEL

if TYPE_CHECKING:
    from benchmarks.noise.pairs import PairNoise
    from benchmarks.noise.points import PointNoise
    from benchmarks.noise.summary import Summary
    from search_spaces.configuration import Configuration

_HOUR_S = 3600.0


def document(summary: Summary, facts: dict[str, str]) -> dict[str, Any]:
    """Return the summary; deviations and changes are shares of 1, times are in seconds."""
    return {
        "schema": 1,
        **facts,
        "simulated": facts.get("provenance") == "simulated",
        "level": LEVEL,
        "points": [_point(point) for point in summary.points],
        "pairs": [_pair(pair) for pair in summary.pairs],
        "drifts": [
            {
                **_what(drift.configuration, drift.concurrency),
                "blocks": drift.blocks,
                "seconds": drift.seconds,
                "slope_per_hour": drift.trend.slope.map(lambda s: s * _HOUR_S).to_dict(),
                "neighbours": drift.trend.after,
                "quarters": list(drift.quarters),
                "block": drift.deviation,
            }
            for drift in summary.drifts
        ],
        "disturbances": [
            {
                **_what(each.configuration, each.concurrency),
                "beside": each.condition,
                "cycles": each.cycles,
                "not_believed": each.not_believed,
                "output_tok_s": each.tok_s.to_dict(),
                "cycle_ms": (None if math.isnan(each.cycle_ms.value) else each.cycle_ms.to_dict()),
            }
            for each in summary.disturbances
        ],
        "too_few": list(summary.too_few),
    }


def _what(configuration: Configuration, concurrency: int) -> dict[str, Any]:
    return {
        "configuration": configuration.to_dict(),
        "key": configuration.key,
        "concurrency": concurrency,
    }


def _point(point: PointNoise) -> dict[str, Any]:
    launches, blocks, prompts = point.sizes
    drift = point.drift
    return {
        **_what(point.configuration, point.concurrency),
        "launches": launches,
        "blocks": blocks,
        "prompts": prompts,
        "left_out": point.left_out,
        "means": dict(point.means),
        "of_windows": {
            figure: {name: split.deviation(name).to_dict() for name in split.weights}
            for figure, split in point.of_blocks.items()
        },
        "of_requests": {
            figure: {name: split.deviation(name).to_dict() for name in split.weights}
            for figure, split in point.of_requests.items()
        },
        "one_window": {
            "same_prompts": point.same_prompts.to_dict(),
            "other_prompts": point.other_prompts,
        },
        "slope_per_hour": (
            None if drift is None else drift.slope.map(lambda s: s * _HOUR_S).to_dict()
        ),
        "span_s": point.span_s,
        "client_cpu_share": point.client_cpu_share,
    }


def _pair(pair: PairNoise) -> dict[str, Any]:
    return {
        "first": pair.first.configuration.key,
        "second": pair.second.configuration.key,
        "concurrency": pair.first.concurrency,
        "difference": pair.difference,
        "prompt": {"own": pair.apart.to_dict(), "same": pair.together.to_dict()},
        "removed": None if math.isnan(pair.removed) else pair.removed,
        "told_apart": {
            prompts: {str(n): pair.told_apart(n, prompts=prompts) for n in LAUNCHES}
            for prompts in ("these", "same", "other")
        },
    }
