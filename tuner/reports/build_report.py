"""Build the report of a stored study from the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runners.base import Simulation
from search_spaces.safety_warnings import safety_warnings
from search_spaces.simulated_acceptance import simulates_acceptance
from tuner.analysis.selected_trial import NothingToExplain, choose
from tuner.formatting import fixed_names
from tuner.hot_switch.report import hot_switch_report
from tuner.reports.report import StudyReport
from tuner.studies.assembly import assumed_profile, make_leaderboard

if TYPE_CHECKING:
    from results.store import Store
    from runners.base import Runner
    from search_spaces.study_file.study import Study
    from tuner.verdict.scores import Leaderboard


def make_report(store: Store, name: str, study: Study, runner: Runner) -> StudyReport:
    """Build the report of a stored study.

    The report needs no search space, so results stay readable after legality rules change.
    """
    stored = store.study(name)
    launches = store.launches(stored.id)
    leaderboard = make_leaderboard(store, stored, study)
    best = leaderboard.best
    owner = store.owner(stored.id)
    return StudyReport(
        study=stored,
        leaderboard=leaderboard,
        launches=launches,
        launches_spent=store.launches_spent(stored.id),
        command=runner.command(best.configuration) if best is not None else None,
        owner_lives=owner is not None and owner.may_live(),
        fixed=fixed_names(study),
        profile=runner.profile if isinstance(runner, Simulation) else None,
        notes=tuple(note for note in (assumed_profile(study, runner),) if note is not None),
        cautions=safety_warnings(best.configuration, study) if best is not None else (),
        hot_switch=hot_switch_report(store, stored, leaderboard.trials, launches),
        simulated_acceptance=simulates_acceptance(study),
        explainable=_explainable(leaderboard, study),
    )


def _explainable(leaderboard: Leaderboard, study: Study) -> bool:
    try:
        choose(leaderboard, study)
    except NothingToExplain:
        return False
    return True
