"""A made-up machine, and studies that are replayed on it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from runners.plugin.package import same_but_setting
from runners.replay.runner import ReplayRunner
from runners.replay.table import ReplayEntry, ReplayRow, table_of
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from tuner.loop.progress import Silent
from tuner.reports.build_report import make_report
from tuner.studies import assembly

if TYPE_CHECKING:
    from results.records import Failure
    from search_spaces.configuration import Configuration


def speed(configuration: Configuration) -> float:
    """A made-up machine with one best point: 2 steps with the tuned protocol."""
    speculation = configuration.speculation
    tuned = dict(configuration.env)["NCCL_PROTO"] is not None
    if not speculation.enabled:
        return 90.0
    return {1: 80.0, 2: 85.0, 3: 84.0, 4: 83.0, 5: 82.0}[speculation.num_steps] + (
        12.0 if tuned else 0.0
    )


def table(study, *, failures: dict[str, Failure] | None = None, launch_s: float = 100.0):
    points = {*Space(study).points, *baselines(study).values()}
    return table_of(
        (
            point,
            ReplayEntry(
                launch_s,
                {p.concurrency: (ReplayRow(speed(point)),) for p in study.workload.points},
                (failures or {}).get(point.key),
            ),
        )
        for point in points
    )


def chains(a: Configuration, b: Configuration) -> bool:
    """What the plugin switches; trees, too, in the studies that have some."""
    return same_but_setting(a, b)


def point(study, steps: int | None, proto: str | None) -> Configuration:
    return next(
        p
        for p in Space(study).points
        if p.speculation.num_steps == steps and dict(p.env)["NCCL_PROTO"] == proto
    )


def play(study, store, runner, *, planner="auto", hot_switch=False, name="s", heed=lambda p: p):
    """Runs a new study, or goes on with the stored one, on a runner of the test's own."""
    problem = heed(assembly.build_problem(study, runner, hot_switch=hot_switch))
    if name not in {s.name for s in store.studies()}:
        store.create_study(
            assembly.describe_new(
                problem,
                runner,
                name=name,
                seed=0,
                planner=planner,
                hot_switch=hot_switch,
                launches=None,
                hours=None,
            )
        )
    loop, _ = assembly.make_sweep(
        problem,
        store.study(name),
        store,
        runner,
        Silent(),
        mirror=None,
        shielded=contextlib.nullcontext,
    )
    loop.run()
    return make_report(store, name, problem.study, runner)


class Odd(ReplayRunner):
    """A replay whose measurements a test bends: `bend` gets each, and may raise instead."""

    def __init__(self, study, bend, **options) -> None:
        super().__init__(table(study), study, **options)
        self._bend = bend

    def measured(self, configuration, point):
        return self._bend(configuration, super().measured(configuration, point))
