"""Relations inside a study's workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.sampling import SHAPING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_spaces.study_file.study import WorkloadSpec
    from search_spaces.study_file.yaml_nodes import Path


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
