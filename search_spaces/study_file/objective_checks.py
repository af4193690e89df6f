"""Whether an objective says something of every operating point, and can be met at all."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_spaces.study_file.study import Objective, WorkloadSpec
    from search_spaces.study_file.yaml_nodes import Path

_GOODPUT = "goodput_request_s"
_EXAMPLE = "`workload: {goodput: {ttft_ms: 500, tpot_ms: 50}}`"
_PERCENTILES = ("p50", "p95", "p99")
_LEAST_MS = {"ttft": 1.0, "tpot": 0.01, "e2e": 1.0}
"""Less than any server's: such a limit was meant in seconds."""

Found = tuple["Path", str]


def check_objective(objective: Objective, workload: WorkloadSpec) -> Iterator[Found]:
    """What makes an objective no question, or one with no answer (design decision 10)."""
    yield from _goodput(objective, workload)
    yield from _open_points(objective, workload)
    yield from _after_the_first_token(objective, workload)
    yield from _limits(objective)
    if workload.goodput is not None:
        limits = {f"{what}_ms": getattr(workload.goodput, f"{what}_ms") for what in _LEAST_MS}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        for name, limit in given.items():
            if (problem := _seconds(name, limit)) is not None:
                yield ("workload", "goodput", name), problem
        if "ttft_ms" in given and given.get("e2e_ms", given["ttft_ms"]) < given["ttft_ms"]:
            yield (
                ("workload", "goodput", "ttft_ms"),
                (
                    f"Has no effect: a request's first token never comes after its last, which "
                    f"must come within {given['e2e_ms']:g} ms; leave it out, or make it smaller"
                ),
            )


def _goodput(objective: Objective, workload: WorkloadSpec) -> Iterator[Found]:
    figure = objective.figure
    if figure.name == _GOODPUT and workload.goodput is None:
        yield (
            ("objective", "maximize"),
            f"Goodput counts the requests that keep limits, and there are none: write {_EXAMPLE}",
        )


def _open_points(objective: Objective, workload: WorkloadSpec) -> Iterator[Found]:
    figure = objective.figure
    if figure.name == _GOODPUT or not figure.larger_is_better:
        return
    for index, spec in enumerate(workload.points):
        point = spec.to_point()
        if point.is_open:
            message = (
                f"{figure.name} at {point.name} is what arrives as long as the server keeps up, "
                f"whatever its settings: write `objective: {{maximize: {_GOODPUT}}}` with "
                f"{_EXAMPLE}, or `objective: {{minimize: e2e_p95_ms}}`, or give the point a "
                "concurrency"
            )
            yield ("workload", "points", index), message


def _after_the_first_token(objective: Objective, workload: WorkloadSpec) -> Iterator[Found]:
    if workload.output_tokens.mean > 1:
        return
    message = (
        "There is no time per token after the first in answers of 1 token: write "
        "`output_tokens: 256`, or take ttft or e2e"
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
        at: Path = ("objective", "subject_to", name)
        if (problem := _seconds(name, limit)) is not None:
            yield at, problem
        elif (tighter := _tighter(name, limit, limits)) is not None:
            yield (
                at,
                (
                    f"Has no effect beside {tighter} {limits[tighter]:g}, which is never less than "
                    f"{name}: swap the numbers, or leave it out"
                ),
            )


def _tighter(name: str, limit: float, limits: dict[str, float]) -> str | None:
    """A limit that keeps this one too: of a figure that is never smaller, and no larger itself."""
    what, percentile, _ = name.split("_")
    above = _PERCENTILES[_PERCENTILES.index(percentile) :]
    kinds = ("ttft", "e2e") if what == "ttft" else (what,)
    for kind, other in itertools.product(kinds, above):
        wider = f"{kind}_{other}_ms"
        if wider != name and limits.get(wider, limit + 1) <= limit:
            return wider
    return None


def _seconds(name: str, limit: float) -> str | None:
    if limit >= _LEAST_MS[name.split("_", maxsplit=1)[0]]:
        return None
    return f"{limit:g} ms is less than any server takes; limits are in ms: write {limit * 1000:g}"
