"""Replays studies from a table: the whole loop, on a virtual clock, in milliseconds.

For the error rates of planners and verdicts: same agenda, launcher, records and store as a real
sweep, only the servers are rows of a table.

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
    """Runs one study against a table.

    Args:
        study: The study; its runner is not used.
        table: What is measured.
        store: Where the records go (`sqlite://` for a throw-away one).
        name: Of the stored study; a replay of its own needs one of its own.
        seed: Of planner and noise.
        planner: As for `tuner sweep`.
        launches: Budget; the study's unless given.
        noise: Relative standard deviation added to every measurement.
        can_switch: Which configurations one launch can be switched through.
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
