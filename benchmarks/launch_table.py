"""Print the cost of launches as a table, and write it to files."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import statistics
from typing import TYPE_CHECKING

from benchmarks.launch_stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study


@dataclasses.dataclass
class LaunchCost:
    """Cost of one launch.

    Attributes:
        way: Way of starting.
        number: Number over all ways.
        stages: Seconds per stage until the server was ready.
        ready_s: Seconds from the start to the first generation.
        start_s: Seconds until the runner returned a session, including the read-back.
        health_s: Time of `/health` once the server is ready; no launch waits for it.
        measure_s: Time of the windows.
        stop_s: Time from the stop request to the proof that all processes have ended.
        cpu_s: CPU seconds until ready, by process.
        output_tok_s: Figure of each window.
        cycle_ms: Time per verify (per token without speculation) of each window.
    """

    way: str
    number: int
    stages: dict[str, float]
    ready_s: float
    start_s: float
    health_s: float
    measure_s: float
    stop_s: float
    cpu_s: dict[str, float]
    output_tok_s: list[float]
    cycle_ms: list[float]

    @property
    def spent_s(self) -> float:
        """Total time without the windows and without the steps that only this benchmark needs."""
        return self.start_s + self.stop_s


def table(costs: list[LaunchCost]) -> str:
    """Return medians per way: the stages, then the total cost of a launch."""
    ways = list(dict.fromkeys(cost.way for cost in costs))
    rows: list[tuple[str, list[float]]] = []
    windows: list[str] = []

    def row(name: str, of: Callable[[LaunchCost], float]) -> None:
        rows.append(
            (name, [statistics.median(of(c) for c in costs if c.way == way) for way in ways])
        )

    row("launches", lambda c: sum(o.way == c.way for o in costs))
    for stage in STAGES:
        row(f"  {stage}", _seconds_in(stage))
    row("ready_s", lambda c: c.ready_s)
    row("start_s (with read-back)", lambda c: c.start_s)
    row("measure_s", lambda c: c.measure_s)
    row("stop_s", lambda c: c.stop_s)
    row("not waited for any more: /health", lambda c: c.health_s)
    row("processor seconds until ready", lambda c: sum(c.cpu_s.values()))
    row("launches per hour, windows left out", lambda c: 3600 / c.spent_s)
    row("launches per hour, windows in", lambda c: 3600 / (c.spent_s + c.measure_s))
    row("output tok/s", lambda c: statistics.median(c.output_tok_s or [0.0]))
    row("ms per verify, or token", lambda c: statistics.median(c.cycle_ms or [0.0]))
    for cost in costs:
        told = ", ".join(f"{speed:.2f}" for speed in cost.output_tok_s)
        windows.append(f"launch {cost.number} ({cost.way}): tok/s of its windows: {told}")
    lines = [f"{'':40}" + "".join(f"{way:>16}" for way in ways)]
    lines += [f"{name:40}" + "".join(f"{value:16.2f}" for value in values) for name, values in rows]
    return "\n".join((*lines, *windows))


def _seconds_in(stage: str) -> Callable[[LaunchCost], float]:
    return lambda cost: cost.stages[stage]


def write(
    folder: Path, costs: list[LaunchCost], study: Study, configuration: Configuration
) -> None:
    """Write `launch-cost.json` with all figures and `launch-cost.csv` with a row per launch."""
    load = os.getloadavg()[0]
    told = {"study": study.name, "configuration": configuration.key, "cores": os.cpu_count()}
    rows = [dataclasses.asdict(cost) for cost in costs]
    (folder / "launch-cost.json").write_text(
        json.dumps(told | {"load_at_the_end": load, "launches": rows}, indent=1) + "\n"
    )
    with (folder / "launch-cost.csv").open("w", newline="") as file:
        figures = ("ready_s", "start_s", "health_s", "measure_s", "stop_s")
        writer = csv.writer(file, lineterminator="\n")
        last = ("cpu_s", "output_tok_s", "cycle_ms")
        writer.writerow(("way", "launch", *STAGES, *figures, *last))
        for cost in costs:
            seconds = [round(cost.stages[stage], 3) for stage in STAGES]
            others = [round(getattr(cost, name), 3) for name in figures]
            speed = statistics.median(cost.output_tok_s or [0.0])
            cpu_s = round(sum(cost.cpu_s.values()), 2)
            cycle = statistics.median(cost.cycle_ms or [0.0])
            tail = (cpu_s, round(speed, 3), round(cycle, 4))
            writer.writerow((cost.way, cost.number, *seconds, *others, *tail))
