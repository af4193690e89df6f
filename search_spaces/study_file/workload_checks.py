"""Check relations between the keys of `workload` and `objective` in a study file."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from search_spaces.study_file.values import SHAPING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_spaces.study_file.document import KeyPath
    from search_spaces.study_file.study import Objective, WorkloadSpec

    Found = tuple[KeyPath, str]

_GOODPUT = "goodput_request_s"
_EXAMPLE = "`workload: {goodput: {ttft_ms: 500, tpot_ms: 50}}`"
_PERCENTILES = ("p50", "p95", "p99")
_MINIMUM_MS = {"ttft": 1.0, "tpot": 0.01, "e2e": 1.0}
"""No server is faster, so a smaller limit is probably written in seconds."""


def check_workload(workload: WorkloadSpec) -> Iterator[Found]:
    """Find repeated operating points and sampling parameters without effect."""
    seen: set[object] = set()
    for index, spec in enumerate(workload.points):
        point = spec.to_point()
        [(kind, value)] = point.to_dict().items()
        if (kind, value) in seen:
            yield ("workload", "points", index, kind), f"{kind} {value} is repeated; remove one"
        seen.add((kind, value))
    if workload.temperature == 0:
        for name in SHAPING:
            if name in workload.sampling:
                message = (
                    "Has no effect at temperature 0 (greedy); write `temperature: 0.7` too, or "
                    "remove it"
                )
                yield ("workload", "sampling", name), message


def check_objective(objective: Objective, workload: WorkloadSpec) -> Iterator[Found]:
    """Find objectives that say nothing or that cannot be met (design decision 10)."""
    figure = objective.metric
    if figure.name == _GOODPUT and workload.goodput is None:
        message = f"Goodput needs limits on requests: write {_EXAMPLE}"
        yield ("objective", "maximize"), message
    if figure.name != _GOODPUT and figure.larger_is_better:
        yield from _open_points(figure.name, workload)
    if workload.output_tokens.mean == 1:
        yield from _tpot_of_one_token(objective, workload)
    yield from _limits(objective)
    if workload.goodput is not None:
        limits = {f"{kind}_ms": getattr(workload.goodput, f"{kind}_ms") for kind in _MINIMUM_MS}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        for name, limit in given.items():
            if (problem := _seconds(name, limit)) is not None:
                yield ("workload", "goodput", name), problem
        if "ttft_ms" in given and given.get("e2e_ms", given["ttft_ms"]) < given["ttft_ms"]:
            message = (
                f"Has no effect: the whole answer must arrive within {given['e2e_ms']:g} ms; "
                "remove it, or make it smaller"
            )
            yield ("workload", "goodput", "ttft_ms"), message


def _open_points(figure: str, workload: WorkloadSpec) -> Iterator[Found]:
    for index, spec in enumerate(workload.points):
        point = spec.to_point()
        if point.is_open:
            message = (
                f"{figure} at {point.name} equals the arrival rate while the server keeps up, so "
                f"settings do not change it: write `objective: {{maximize: {_GOODPUT}}}` with "
                f"{_EXAMPLE}, or `objective: {{minimize: e2e_p95_ms}}`, or give the point a "
                "concurrency"
            )
            yield ("workload", "points", index), message


def _tpot_of_one_token(objective: Objective, workload: WorkloadSpec) -> Iterator[Found]:
    message = (
        "Answers of 1 token have no time per output token: write `output_tokens: 256`, or use ttft "
        "or e2e"
    )
    if objective.minimize is not None and objective.minimize.startswith("tpot"):
        yield ("objective", "minimize"), message
    for name in objective.subject_to:
        if name.startswith("tpot"):
            yield ("objective", "subject_to", name), message
    if workload.goodput is not None and workload.goodput.tpot_ms is not None:
        yield ("workload", "goodput", "tpot_ms"), message


def _limits(objective: Objective) -> Iterator[Found]:
    limits = objective.subject_to
    for name, limit in limits.items():
        at: KeyPath = ("objective", "subject_to", name)
        if (problem := _seconds(name, limit)) is not None:
            yield at, problem
        elif (tighter := _tighter(name, limit, limits)) is not None:
            message = (
                f"Has no effect: {tighter} is never below {name}, and its limit is "
                f"{limits[tighter]:g}; swap the numbers, or remove one"
            )
            yield at, message


def _tighter(name: str, limit: float, limits: dict[str, float]) -> str | None:
    """Find a limit that implies this one: of a latency that is never smaller."""
    kind, percentile, _ = name.split("_")
    above = _PERCENTILES[_PERCENTILES.index(percentile) :]
    kinds = ("ttft", "e2e") if kind == "ttft" else (kind,)
    for other_kind, other in itertools.product(kinds, above):
        wider = f"{other_kind}_{other}_ms"
        if wider != name and limits.get(wider, limit + 1) <= limit:
            return wider
    return None


def _seconds(name: str, limit: float) -> str | None:
    if limit >= _MINIMUM_MS[name.split("_", maxsplit=1)[0]]:
        return None
    return f"Limits are in ms, and no server reaches {limit:g} ms; write {limit * 1000:g}"
