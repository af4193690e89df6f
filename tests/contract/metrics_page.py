"""`/metrics`: families and values of a page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_SIMULATED = {
    *("sglang:process_cpu_seconds_total", "sglang:cuda_graph_passes_total"),
}
"""Counts of SGLang's processes and graphs; the simulation has neither."""

OFTEN_EMPTY = {
    *("sglang:num_aborted_requests_total", "sglang:get_loads_duration_seconds"),
    *("sglang:cached_tokens_total", "sglang:http_responses_total", "sglang:http_requests_total"),
}
"""Families that appear with their first count."""


@dataclass(slots=True)
class Family:
    """One family.

    Attributes:
        kind: Counter, gauge or histogram.
        help: The `# HELP` line.
        labels: Label names of the series.
        bounds: Upper bounds of a histogram's buckets.
        values: Values by name and labels.
    """

    kind: str
    help: str
    labels: set[tuple[str, ...]] = field(default_factory=set)
    bounds: set[str] = field(default_factory=set)
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)


@lru_cache(maxsize=32)
def families(page: str) -> dict[str, Family]:
    """Return the families of a page; the result is shared and must not be changed."""
    found: dict[str, Family] = {}
    helps: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("# HELP "):
            helps[line.split(" ")[2]] = line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            found[name] = Family(kind, helps.get(name, ""))
        elif line:
            _add(found, line)
    return found


def _add(found: dict[str, Family], line: str) -> None:
    series, _, value = line.rpartition(" ")
    name, _, rest = series.partition("{")
    base = re.sub("_(bucket|sum|count)$", "", name)
    family = found[base if base in found and found[base].kind == "histogram" else name]
    labels = re.findall(r'(\w+)="([^"]*)"', rest)
    family.bounds |= {bound for label, bound in labels if label == "le"}
    family.labels.add(tuple(label for label, _ in labels))
    family.values[name, tuple(sorted(labels))] = float(value)


def total(page: str, name: str, **labels: str) -> float:
    """Return the sum of the series with these labels; 0 without series."""
    family = families(page).get(f"sglang:{name}")
    if family is None:
        return 0.0
    wanted = set(labels.items())
    return sum(v for (_, found), v in family.values.items() if wanted <= set(found))


def compare(real: str, simulated: str) -> Iterator[str]:
    """Describe the differences of two pages after equal requests."""
    theirs, ours = families(real), families(simulated)
    for name in sorted(theirs.keys() | ours.keys()):
        if name in NOT_SIMULATED or (name in OFTEN_EMPTY and not (name in theirs and name in ours)):
            continue
        if name not in ours:
            yield f"{name}: missing"
        elif name not in theirs:
            yield f"{name}: the real one has no such family"
        else:
            yield from _family(name, theirs[name], ours[name])


def _family(name: str, theirs: Family, ours: Family) -> Iterator[str]:
    for what in ("kind", "help", "labels", "bounds"):
        real, simulated = getattr(theirs, what), getattr(ours, what)
        if real != simulated:
            yield f"{name}: {what} {simulated}, not {real}"
