"""Tables of a summary of `benchmarks.noise`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.noise.pairs import LAUNCHES
from benchmarks.noise.study import label
from benchmarks.noise.variance import LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.noise.changes import Disturbance, LongDrift
    from benchmarks.noise.pairs import PairNoise
    from benchmarks.noise.points import PointNoise
    from benchmarks.noise.summary import Summary
    from benchmarks.noise.variance import Estimate


def tables(summary: Summary) -> str:
    """Return all tables as text."""
    lines: list[str] = []
    of_each = ", ".join(map(str, LAUNCHES))
    if summary.points:
        limits = f"limits in brackets: {LEVEL:.0%}"
        lines += [
            f"Standard deviations in %, of one window (same prompts in every window); {limits}",
            *_aligned(_windows(summary.points)),
            "",
            "The same of time per verify (per token without speculation) and of accept length",
            *_aligned(_cycles(summary.points)),
            "",
            "Standard deviations in %, of one request's tok/s",
            *_aligned(_requests(summary.points)),
            "",
            "Within launches: change of tok/s in % from a launch's first block to its last",
            *_aligned(_within(summary.points)),
        ]
    if summary.pairs:
        lines += [
            "",
            "Two configurations: what one prompt does to their difference (deviation in %), and",
            f"the smallest difference in % that {of_each} launches of each tell apart (95 %)",
            *_aligned(_pairs(summary.pairs)),
        ]
    if summary.drifts:
        lines += ["", "Long launches: tok/s over time", *_aligned(_drifts(summary.drifts))]
    if summary.disturbances:
        lines += [
            "",
            "Change in % by what runs beside, against the quiet blocks before and after",
            *_aligned(_disturbed(summary.disturbances)),
        ]
    lines += [f"too few to tell: {text}" for text in summary.too_few]
    return "\n".join(lines).lstrip("\n")


def _windows(points: Sequence[PointNoise]) -> Iterator[Sequence[str]]:
    yield (
        *("configuration", "users", "launches x blocks", "tok/s", "launch", "block"),
        *("one window", "other prompts"),
    )
    for point in points:
        speed = point.of_blocks["output_tok_s"]
        out = f" (-{point.left_out})" if point.left_out else ""
        yield (
            label(point.configuration),
            str(point.concurrency),
            f"{point.sizes[0]} x {point.sizes[1]}{out}",
            f"{point.means['output_tok_s']:.1f}",
            _percent(speed.deviation("launch")),
            _percent(speed.deviation("block")),
            _percent(point.same_prompts),
            f"{100 * point.other_prompts:.2f}",
        )


def _cycles(points: Sequence[PointNoise]) -> Iterator[Sequence[str]]:
    yield (
        *("configuration", "users", "ms/verify", "launch", "block"),
        *("accept length", "launch", "block"),
    )
    for point in points:
        row = [label(point.configuration), str(point.concurrency)]
        for figure in ("cycle_ms", "accept_length"):
            split = point.of_blocks.get(figure)
            row += (
                [""] * 3
                if split is None
                else [
                    f"{point.means[figure]:.3f}",
                    *(_percent(split.deviation(name)) for name in ("launch", "block")),
                ]
            )
        yield row


_OF_REQUESTS = ("prompt", "launch", "block", "prompt_launch", "residual")


def _requests(points: Sequence[PointNoise]) -> Iterator[Sequence[str]]:
    yield (
        *("configuration", "users", "prompts", "prompt", "launch", "block"),
        *("prompt x launch", "rest", "ms/verify prompt", "rest", "client CPU"),
    )
    for point in points:
        split, cycle = (point.of_requests.get(name) for name in ("output_tok_s", "cycle_ms"))
        if split is None or cycle is None:
            continue
        yield (
            label(point.configuration),
            str(point.concurrency),
            str(point.sizes[2]),
            *(_percent(split.deviation(name)) for name in _OF_REQUESTS),
            *(_percent(cycle.deviation(name)) for name in ("prompt", "residual")),
            f"{point.client_cpu_share:.0%}",
        )


def _within(points: Sequence[PointNoise]) -> Iterator[Sequence[str]]:
    yield "configuration", "users", "minutes", "change", "neighbours' correlation"
    for point in points:
        if point.drift is not None:
            yield (
                label(point.configuration),
                str(point.concurrency),
                f"{point.span_s / 60:.1f}",
                _signed(point.drift.slope, point.span_s),
                f"{point.drift.after:+.2f}",
            )


def _pairs(pairs: Sequence[PairNoise]) -> Iterator[Sequence[str]]:
    launches = "/".join(map(str, LAUNCHES))
    yield (
        *("first", "second", "users", "second/first", "own prompts", "same prompts", "removed"),
        *(f"these prompts, {launches}", f"same prompts, {launches}", f"own prompts, {launches}"),
    )
    for pair in pairs:
        removed = "" if math.isnan(pair.removed) else f"{pair.removed:.0%}"
        yield (
            label(pair.first.configuration),
            label(pair.second.configuration),
            str(pair.first.concurrency),
            f"{math.exp(pair.difference):.3f}",
            _percent(pair.apart),
            _percent(pair.together),
            removed,
            *(
                "/".join(f"{100 * pair.told_apart(n, prompts=prompts):.2f}" for n in LAUNCHES)
                for prompts in ("these", "same", "other")
            ),
        )


def _drifts(drifts: Sequence[LongDrift]) -> Iterator[Sequence[str]]:
    yield (
        *("configuration", "users", "blocks", "minutes", "change, %"),
        *("neighbours' correlation", "quarters, %", "block, %"),
    )
    for drift in drifts:
        yield (
            label(drift.configuration),
            str(drift.concurrency),
            str(drift.blocks),
            f"{drift.seconds / 60:.1f}",
            _signed(drift.trend.slope, drift.seconds),
            f"{drift.trend.after:+.2f}",
            " ".join(f"{100 * each:+.2f}" for each in drift.quarters),
            f"{100 * drift.deviation:.2f}",
        )


def _disturbed(disturbances: Sequence[Disturbance]) -> Iterator[Sequence[str]]:
    yield "configuration", "users", "beside", "cycles", "tok/s", "ms/verify", "invalid"
    for each in disturbances:
        yield (
            label(each.configuration),
            str(each.concurrency),
            each.condition,
            str(each.cycles),
            _signed(each.tok_s),
            "" if math.isnan(each.cycle_ms.value) else _signed(each.cycle_ms),
            str(each.not_believed),
        )


def _percent(estimate: Estimate) -> str:
    value, low, high = (100 * each for each in (estimate.value, estimate.low, estimate.high))
    return f"{value:.2f} ({low:.2f}-{high:.2f})"


def _signed(estimate: Estimate, times: float = 1.0) -> str:
    scale = 100 * times
    value, low, high = (scale * each for each in (estimate.value, estimate.low, estimate.high))
    return f"{value:+.2f} ({low:+.2f} to {high:+.2f})"


def _aligned(rows: Iterator[Sequence[str]]) -> list[str]:
    table = list(rows)
    widths = [max(len(row[n]) for row in table) for n in range(len(table[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
