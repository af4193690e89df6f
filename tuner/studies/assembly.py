"""Build the parts of a study: search space, runner, planner, launcher, loop."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import make_url

from results.records import Purpose
from results.studies import NewStudy
from runners.base import DraftPlacement, EnvironmentUnusableError, HotSwitch, Simulation, machine_of
from runners.registry import check_runner, make_runner
from runners.sglang.command import tp_size
from search_spaces.rules.legality import violations
from search_spaces.simulated_acceptance import simulates_acceptance
from search_spaces.space.baselines import PRODUCTION, default_baseline
from search_spaces.space.baselines import baselines as baselines_of
from search_spaces.space.space import Space, SpaceTooLargeError
from search_spaces.study_file.load import StoredFile, parse_stored, parse_study
from search_spaces.workload import DEFAULT_OUTPUT_SPREAD
from tuner.errors import CommandError
from tuner.formatting import counted
from tuner.hot_switch.anchors import Anchors
from tuner.loop.equivalent_configurations import EquivalentConfigurations
from tuner.loop.launching import Launcher
from tuner.loop.next_launch import NextLaunch
from tuner.loop.sweep import Sweep
from tuner.planners.launches import LaunchBuilder, everything
from tuner.planners.registry import AUTO, auto_planner, choose_planner, make_planner
from tuner.verdict.scores import Leaderboard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    from results.records import Trial
    from results.store import Store
    from results.studies import StoredStudy
    from runners.base import Runner
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study
    from tuner.loop.optuna_mirror import Mirror
    from tuner.loop.progress import Progress
    from tuner.planners.base import Planner
    from tuner.planners.launches import Needed


LOGS = Path("tuner-logs")
"""Folder of server logs, beside the database."""

_OUTPUT_SPREAD = "output_spread"
"""Option of a stored study: default spread of answer lengths."""


@dataclass(frozen=True, slots=True)
class TuningProblem:
    """The problem that a study solves, before anything is stored.

    Attributes:
        study: The study file.
        space: Legal points, restricted to the draft placements that the runner supports.
        baselines: Baselines by name, in the order of measurement.
        launches: Groups points into launches.
        notes: Notes for the user: skipped points, skipped baselines.
        expected: Points that probably need no launch, judged by the machine's topology.
    """

    study: Study
    space: Space
    baselines: Mapping[str, Configuration]
    launches: LaunchBuilder
    notes: tuple[str, ...]
    expected: frozenset[Configuration] = frozenset()

    def planner(self, budget: int) -> str:
        """Name of the planner that suits a launch budget."""
        baselines = self.baselines.values()
        return choose_planner(self.space, self.launches, budget, baselines, without=self.expected)

    def anchors(self) -> Anchors:
        """Select the configurations that share a launch."""
        return Anchors(self.launches, lambda c: not violations(c, self.study))

    def needed(self) -> Needed:
        """Number of launches for the baselines and for all points that probably need one."""
        left = everything(self.space, self.baselines.values(), without=self.expected)
        return self.launches.needed(left, baselines=self.baselines.values())


def make_servers(kind: str, study: Study, *, seed: int, first_launch: int = 0) -> Runner:
    """Make the runner of a study.

    Raises:
        CommandError: No runner has this name.
    """
    try:
        check_runner(kind)
    except ValueError as error:
        raise CommandError(f"{error} (key `runner` of {study.source})") from error
    return make_runner(kind, study, seed=seed, log_dir=LOGS, first_launch=first_launch)


def reopen_servers(store: Store, stored: StoredStudy, study: Study) -> Runner:
    """Make the runner of a stored study. A simulation continues with new noise."""
    launches = len(store.launches(stored.id))
    return make_servers(stored.runner, study, seed=stored.seed, first_launch=launches)


def draft_sizes(runner: Runner, study: Study) -> Callable[[int], bool]:
    """Return a test for the tensor-parallel sizes that a draft may have.

    SGLang runs the draft in the target's groups and has no flag for other groups (0.5.23), so only
    the target's size is allowed, unless the runner places drafts.
    """
    if isinstance(runner, DraftPlacement):
        return runner.supports_draft_tp
    own = tp_size(study)
    return lambda size: size == own


def build_problem(
    study: Study, runner: Runner, *, hot_switch: bool, notes: Sequence[str] = ()
) -> TuningProblem:
    """Derive search space, baselines and launches of a study.

    Args:
        study: The study.
        runner: Starts the servers.
        hot_switch: Whether settings may share a launch.
        notes: Notes that precede the notes of this function.

    Raises:
        CommandError: No point can be measured.
    """
    allowed = draft_sizes(runner, study)
    try:
        space = Space(study, draft_tp_allowed=allowed)
    except SpaceTooLargeError as error:  # a study that an older version stored
        raise CommandError(f"space: {error}") from None
    notes = list(notes)
    if refused := [n for n in study.space.draft_tp or () if not allowed(n)]:
        left = len(refused) < len(study.space.draft_tp or ())
        notes.append(
            f"draft_tp {', '.join(map(str, refused))} is skipped: this server environment "
            f"cannot place the draft on fewer GPUs than the target"
            + ("" if left else "; no configuration with a draft remains")
        )
    if (assumed := assumed_profile(study, runner)) is not None:
        notes.append(assumed)
    names = {p.algorithm: p.canonical_algorithm for p in study.space.speculation}
    notes += (
        f"{a} is reported as {b}: both are names of one algorithm"
        for a, b in names.items()
        if a != b
    )
    known = baselines_of(study)
    for name, configuration in tuple(known.items()):
        if broken := violations(configuration, study):
            if name == PRODUCTION:
                notes.append(
                    f"baseline '{name}' breaks a rule but is measured, because it runs today: "
                    f"{broken[0].message}"
                )
                continue
            notes.append(f"baseline '{name}' is skipped: {broken[0].message}")
            del known[name]
    if not len(space):
        why = "; ".join(notes) or "run `tuner validate` for the reason"
        raise CommandError(f"no point of the search space can be measured here: {why}")
    launches = LaunchBuilder(
        space,
        runner.can_switch if isinstance(runner, HotSwitch) else operator.eq,
        hot_switch=hot_switch,
    )
    return TuningProblem(study, space, known, launches, tuple(notes))


def forecast(problem: TuningProblem, runner: Runner) -> TuningProblem:
    """Mark the points that probably need no launch on the runner's machine."""
    equivalent = EquivalentConfigurations(problem.study, problem.space, problem.baselines)
    if not equivalent.varies_nccl:
        return problem
    try:
        expected = equivalent.expected(machine_of(runner))
    except EnvironmentUnusableError:
        return problem  # `Runner.check` tells what is missing
    if not expected:
        return problem
    note = (
        f"{counted(len(expected), 'point')} will probably need no launch: NVLink connects all GPUs "
        "here, so SGLang's own all-reduce kernel handles decoding and NCCL variables do not affect "
        "it; the log of the first launch decides"
    )
    return replace(problem, notes=(*problem.notes, note), expected=expected)


def describe_new(
    problem: TuningProblem,
    runner: Runner,
    *,
    name: str,
    seed: int,
    planner: str,
    hot_switch: bool,
    launches: int | None,
    hours: float | None,
) -> NewStudy:
    """Describe a new study for the database. Options of the command line override its budget."""
    study = problem.study
    budget = launches if launches is not None else study.budget.launches
    return NewStudy(
        name=name,
        text=study.text,
        digest=study.digest,
        space_digest=problem.space.digest,
        runner=runner.name,
        simulated=runner.simulated,
        seed=seed,
        planner=problem.planner(budget) if planner == AUTO else planner,
        hot_switch=hot_switch,
        budget_launches=budget,
        budget_hours=hours if hours is not None else study.budget.hours,
        # A shipped study has none.
        base_dir=str(Path(study.base_dir).resolve()) if study.base_dir else "",
        options={_OUTPUT_SPREAD: study.default_output_spread},
    )


def stored_study_file(stored: StoredStudy, file: Study | None = None) -> StoredFile:
    """Read the study file as stored with the study, which is what the study runs.

    Args:
        stored: The study.
        file: The file given on the command line, if any. Relative paths start in its folder, else
            in the folder of the original file.

    Raises:
        StudyFileError: The stored file cannot be read.
    """
    base_dir = file.base_dir if file is not None else stored.base_dir
    return parse_stored(
        stored.text,
        f"study {stored.name} (stored)",
        base_dir=base_dir,
        output_spread=_output_spread(stored),
    )


def as_stored(stored: StoredStudy, file: Study) -> Study:
    """Read a study file with the defaults of the version that created the stored study.

    Raises:
        StudyFileError: The file is not valid.
    """
    spread = _output_spread(stored)
    if file.default_output_spread == spread:
        return file
    return parse_study(file.text, file.source, base_dir=file.base_dir, output_spread=spread)


def equal_lengths(study: Study) -> str | None:
    """Note for a study of an older version whose answers all have the same length."""
    workload = study.to_workload()
    if (
        study.default_output_spread
        or workload.output_spread
        or workload.natural_length
        or all((point.concurrency or 1) == 1 for point in workload.points)
    ):
        return None
    return (
        "this study keeps answers of equal length, like the version that created it. Windows in "
        "lock-step are invalid. For varied lengths start a new study with `output_tokens: "
        f"{{mean: {workload.output_tokens}, spread: {DEFAULT_OUTPUT_SPREAD}}}`"
    )


def _output_spread(stored: StoredStudy) -> float:
    """Default spread of answer lengths. Version 0.1 stored none and used equal lengths."""
    return float(stored.options.get(_OUTPUT_SPREAD, 0.0))


def log_dir(store: Store, stored: StoredStudy) -> Path:
    """Folder of a study's server logs, beside the database file, else in the working directory."""
    url = make_url(store.url)
    file = url.database if url.get_backend_name() == "sqlite" and not store.in_memory else None
    folder = Path(file).parent if file is not None else Path.cwd()
    return folder / LOGS / stored.name


def make_sweep(
    problem: TuningProblem,
    stored: StoredStudy,
    store: Store,
    runner: Runner,
    progress: Progress,
    *,
    mirror: Mirror | None,
    shielded: Callable[[], AbstractContextManager[None]],
    announce: Callable[[str], None] = lambda _: None,
) -> tuple[Sweep, Launcher]:
    """Make the loop of a stored study, new or resumed."""
    planner: Planner = make_planner(
        stored.planner, problem.space, problem.launches, seed=stored.seed
    )
    # Counted with switching: who asked for all points beyond the budget gets what was asked for.
    counted_on_it = (
        stored.planner == auto_planner("all")
        and problem.launches.hot_switch
        and stored.budget_launches is not None
        and problem.planner(stored.budget_launches) == stored.planner
    )
    launcher = Launcher(
        stored=stored,
        store=store,
        runner=runner,
        workload=problem.study.to_workload(),
        limits=dict(problem.study.objective.subject_to),
        progress=progress,
        log_dir=log_dir(store, stored),
        shielded=shielded,
        machine=machine_of(runner),
        announce=announce,
    )
    equivalent = EquivalentConfigurations(problem.study, problem.space, problem.baselines)
    sweep = Sweep(
        stored=stored,
        store=store,
        runner=runner,
        next_launch=NextLaunch(
            problem.baselines, planner, problem.launches, problem.anchors(), equivalent
        ),
        planner=planner,
        fallback_planner=(
            partial(
                make_planner,
                auto_planner("some"),
                problem.space,
                problem.launches,
                seed=stored.seed,
            )
            if counted_on_it
            else None
        ),
        launcher=launcher,
        equivalent=equivalent,
        baselines=problem.baselines,
        metric=problem.study.objective.metric,
        compare_answers=compares_answers(problem.study),
        progress=progress,
        mirror=mirror,
        shielded=shielded,
    )
    return sweep, launcher


def make_leaderboard(store: Store, stored: StoredStudy, study: Study) -> Leaderboard:
    """Rank the stored trials of a study."""
    trials, launches = store.trials(stored.id), store.launches(stored.id)
    own = {launch.id for launch in launches if launch.imported_from is None}
    return Leaderboard.of(
        trials,
        _baselines(study, trials, own),
        study.objective.metric,
        compare_answers=compares_answers(study),
    )


def compares_answers(study: Study) -> bool:
    """Whether degenerate answers count. Simulated acceptance makes all answers wrong."""
    return not simulates_acceptance(study)


def assumed_profile(study: Study, runner: Runner) -> str | None:
    """Note for a simulated study that names no profile."""
    if not isinstance(runner, Simulation) or "profile" in study.simulated.model_fields_set:
        return None
    from runners.simulated_server.engine.profile import (  # noqa: PLC0415 - of simulations only
        PROFILES,
    )

    shipped = ", ".join(sorted(path.stem for path in PROFILES.glob("*.yaml")))
    return (
        f"simulated with the profile {runner.profile}, not with your model or machine; to select "
        f"another profile ({shipped}, or a file), add `simulated: {{profile: NAME}}` to the study"
    )


def _baselines(
    study: Study, trials: Sequence[Trial], own: AbstractSet[int]
) -> dict[str, Configuration]:
    """Baselines of a study: those that the loop would measure, and those that it measured.

    The loop measures baselines first. If a baseline has no trial although the search has begun, the
    loop skipped it, because SGLang refused it.

    Args:
        study: The study.
        trials: All trials of the study.
        own: Launches that a fork did not import.
    """
    measured = {t.configuration for t in trials if t.purpose is Purpose.BASELINE}
    known = baselines_of(study)
    if any(t.purpose is Purpose.SEARCH and not own.isdisjoint(t.launches) for t in trials):
        met = {t.configuration for t in trials}
        known = {name: c for name, c in known.items() if name == PRODUCTION or c in met}
    if (default := default_baseline(study)) is not None and default in measured:
        known.setdefault("default", default)  # legal when it was measured
    return {
        name: configuration
        for name, configuration in known.items()
        if name == PRODUCTION or configuration in measured or not violations(configuration, study)
    }
