"""Replay studies from a table: the whole loop on a virtual clock, in milliseconds per study.

Replays measure the error rates of planners and verdicts. Loop, records and database are those of a
real sweep; rows of a table replace the servers.

    with Store.open("sqlite://") as store:
        for seed in range(300):
            report = replay(study, table, store, name=f"seed {seed}", seed=seed)
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from runners.replay.runner import ReplayRunner
from tuner.loop.progress import Silent
from tuner.reports.build_report import make_report
from tuner.studies import assembly

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.store import Store
    from runners.replay.table import ReplayTable
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study
    from tuner.reports.report import StudyReport


def replay(
    study: Study,
    table: ReplayTable,
    store: Store,
    *,
    name: str,
    seed: int = 0,
    planner: str = "auto",
    launches: int | None = None,
    noise: float = 0.0,
    can_switch: Callable[[Configuration, Configuration], bool] | None = None,
) -> StudyReport:
    """Run one study against a table and return its report.

    Args:
        study: The study. Its runner is not used.
        table: Results by configuration.
        store: Database for the records; `sqlite://` is one in memory.
        name: Name of the stored study, new in `store`.
        seed: Seed of planner and noise.
        planner: Planner name, as for `tuner sweep`.
        launches: Launch budget. `None`: the budget of the study.
        noise: Relative standard deviation of every measurement.
        can_switch: Whether one launch can measure both configurations. `None`: never.
    """
    runner = ReplayRunner(table, study, seed=seed, noise=noise, can_switch=can_switch)
    problem = assembly.build_problem(study, runner, hot_switch=can_switch is not None)
    new = assembly.describe_new(
        problem,
        runner,
        name=name,
        seed=seed,
        planner=planner,
        hot_switch=can_switch is not None,
        launches=launches,
        hours=None,
    )
    stored = store.create_study(new)
    sweep, _ = assembly.make_sweep(
        problem, stored, store, runner, Silent(), mirror=None, shielded=contextlib.nullcontext
    )
    sweep.run()
    return make_report(store, name, study, runner)
