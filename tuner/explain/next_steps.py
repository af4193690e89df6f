"""What a study has beside the trial that is explained: a better one, or launches to go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.explain.choice import has_clock, is_unfinished
from tuner.words import describe_gain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.records import Trial
    from tuner.report import StudyReport


def next_steps(report: StudyReport, trial: Trial) -> Iterator[str]:
    """In sentences, with the commands to go on by; the best trial's is the last."""
    name = report.study.name
    if is_unfinished(report):
        of = f" of {most}" if (most := report.study.budget_launches) is not None else ""
        made = f"The study is unfinished, {report.launches_spent}{of} launches made"
        yield (
            f"{made}: its sweep is running."
            if report.owner_lives
            else f"{made}: `tuner resume --study {name}` goes on."
        )
    elif report.study.stopped == "budget":
        fork = f"`tuner resume --study {name} --fork NEW --launches N`"
        yield f"The study's budget is spent: {fork} goes on from it."
    best = report.standing.best
    if best is None or best.number == trial.number:
        return
    gains = [
        f", {describe_gain(gain, len(best.measurements))} on baseline '{baseline}'"
        for baseline, _, gain in report.standing.leads(best)[:1]
    ]
    command = f": `tuner explain --study {name} --trial {best.number}`" if has_clock(best) else ""
    end = command or ", and has no record of its cycles."
    yield f"The study's best is trial {best.number}{''.join(gains)}{end}"
