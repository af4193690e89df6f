"""Relations inside a study's workload, and between it and the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.sampling import SHAPING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_spaces.study_parts import Objective
    from search_spaces.workload import OperatingPoint
    from search_spaces.workload_parts import WorkloadSpec
    from search_spaces.yaml_nodes import Path

_GOODPUT = "goodput_request_s"
_EXAMPLE = "`workload: {goodput: {ttft_ms: 500, tpot_ms: 50}}`"


def check_workload(workload: WorkloadSpec) -> Iterator[tuple[Path, str]]:
    """What is wrong with a workload that its keys alone do not show."""
    seen: set[object] = set()
    for index, spec in enumerate(workload.points):
        point = spec.to_point()
        [(kind, value)] = point.to_dict().items()
        if (kind, value) in seen:
            what = {"concurrency": "Concurrency", "request_rate": "Request rate", "trace": "Trace"}
            yield (
                ("workload", "points", index, kind),
                f"{what[kind]} {value} stands twice; keep one of them",
            )
        seen.add((kind, value))
    if workload.temperature == 0:
        for name in SHAPING:
            if name in workload.sampling:
                message = (
                    "Has no effect at temperature 0, which always takes the likeliest token: write "
                    "`temperature: 0.7` too, or leave it out"
                )
                yield ("workload", "sampling", name), message


def check_objective(objective: Objective, workload: WorkloadSpec) -> Iterator[tuple[Path, str]]:
    """Whether the objective says something of every operating point (design decision 10)."""
    figure = objective.figure
    key = "maximize" if figure.larger_is_better else "minimize"
    if figure.name == _GOODPUT and workload.goodput is None:
        yield (
            ("objective", key),
            f"Goodput counts the requests that keep limits, and there are none: write {_EXAMPLE}",
        )
    if figure.name == _GOODPUT or not figure.larger_is_better:
        return
    for index, spec in enumerate(workload.points):
        point: OperatingPoint = spec.to_point()
        if point.is_open:
            message = (
                f"{figure.name} at {point.name} is what arrives as long as the server keeps up, "
                f"whatever its settings: write `objective: {{maximize: {_GOODPUT}}}` with "
                f"{_EXAMPLE}, or `objective: {{minimize: e2e_p95_ms}}`, or give the point a "
                "concurrency"
            )
            yield ("workload", "points", index), message
