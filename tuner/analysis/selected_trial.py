"""Select the trial to explain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from results.records import TrialState
from search_spaces.configuration import NO_SPECULATION
from tuner.analysis.knob_effects import tp_size
from tuner.formatting import counted, shorten

if TYPE_CHECKING:
    from results.records import Trial
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study
    from tuner.reports.report import StudyReport
    from tuner.verdict.scores import Leaderboard

_FINISHED = frozenset({"exhausted", "budget", "converged"})


class NothingToExplain(Exception):  # noqa: N818 - an outcome, told to the user as it is
    """Required cycle times were not recorded. The message says what to do."""


HOW_TO_RECORD = (
    "a sweep records cycle times if the server loads the tuner's plugin or runs SGLang's device "
    "timer (docs/explain.md)"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The trial to explain.

    Attributes:
        trial: The trial.
        why: Why it was selected.
        notes: Notes on the selection.
    """

    trial: Trial
    why: str
    notes: tuple[str, ...] = ()


def has_clock(trial: Trial) -> bool:
    """Whether a measurement of the trial has cycle times."""
    return any(m.cycle is not None and m.cycle.batches for m in trial.measurements)


def hint(report: StudyReport) -> str | None:
    """Line of a report that names `tuner explain`; `None` if no trial has cycle times."""
    if not any(has_clock(trial) for trial in report.leaderboard.trials):
        return None
    return f"where the time of a cycle goes: `tuner explain --study {report.study.name}`"


def is_at_defaults(configuration: Configuration, study: Study) -> bool:
    """Whether the knobs of the system are not set: variables, flags, draft placement."""
    values = [value for _, value in (*configuration.flags, *configuration.env)]
    placed = configuration.draft_tp in {None, tp_size(study, configuration)}
    return placed and all(value is None or value is False for value in values)


def is_unfinished(report: StudyReport) -> bool:
    """Whether the study may have launches left."""
    return report.study.stopped not in _FINISHED


def choose(leaderboard: Leaderboard, study: Study, report: StudyReport | None = None) -> Choice:
    """Select the best speculative trial at default system settings.

    Args:
        leaderboard: Trials of the study.
        study: The study.
        report: Report of the study, for details in the error message.

    Raises:
        NothingToExplain: There is no such trial with cycle times.
    """
    judged = [
        t
        for t in leaderboard.trials
        if t.state is TrialState.COMPLETE
        and t.configuration.speculation.enabled
        and is_at_defaults(t.configuration, study)
    ]
    best = replace(leaderboard, trials=tuple(judged)).best
    if best is None:
        raise NothingToExplain(f"{_no_candidate(report, study)}; {_others(leaderboard)}")
    timed = replace(leaderboard, trials=tuple(t for t in judged if has_clock(t))).best
    if timed is None:
        raise NothingToExplain(
            f"trial {best.number}, the best speculative trial at default system settings, has no "
            f"cycle times: {_how_to_record(report, best)}; "
            f"{_others(leaderboard)}"
        )
    why = f"the best of {counted(len(judged), 'speculative trial')} at default system settings"
    if timed.number == best.number:
        return Choice(timed, why)
    note = f"trial {best.number} is faster, but has no cycle times"
    return Choice(timed, f"{why} with cycle times", (note,))


def given(report: StudyReport, trial: Trial) -> Choice:
    """Select the given trial.

    Raises:
        NothingToExplain: It has no cycle times.
    """
    if not has_clock(trial):
        raise no_clock(report, trial)
    return Choice(trial, "selected with --trial")


def no_clock(report: StudyReport, trial: Trial) -> NothingToExplain:
    """Explain why a trial has no cycle times: its state, or a missing plugin."""
    number = trial.number
    if trial.state is TrialState.RUNNING:
        on = "its sweep is running"
        if not report.owner_lives:
            on = f"continue with `tuner resume --study {report.study.name}`"
        return NothingToExplain(f"trial {number} is not measured yet; {on}")
    if not trial.measurements:
        what = "failed" if trial.state is TrialState.FAILED else f"is {trial.state}"
        why = f": {shorten(trial.failure.message)}" if trial.failure is not None else ""
        return NothingToExplain(f"trial {number} {what} and has no measurements{why}")
    return NothingToExplain(f"trial {number} has no cycle times: {_how_to_record(report, trial)}")


def _how_to_record(report: StudyReport | None, trial: Trial) -> str:
    """Remedy, with the messages of the trial's launches on the plugin."""
    told = [
        f"; launch {launch.id}: {shorten(launch.failure.message)}"
        for launch in (report.launches if report is not None else ())
        if launch.id in trial.launches
        and launch.failure is not None
        and "plugin" in launch.failure.message
    ]
    return HOW_TO_RECORD + "".join(told[-1:])


def _no_candidate(report: StudyReport | None, study: Study) -> str:
    if all(part.canonical_algorithm == NO_SPECULATION for part in study.space.speculation):
        return "the study does not vary speculation"
    yet = " yet" if report is not None and is_unfinished(report) else ""
    return (
        "no speculative trial at default system settings (the study's variables and flags not "
        f"set) is complete{yet}"
    )


def _others(leaderboard: Leaderboard) -> str:
    timed = [str(t.number) for t in leaderboard.trials if has_clock(t)]
    if not timed:
        return "no trial of the study has cycle times"
    return f"trials with cycle times, for --trial: {', '.join(timed)}"
