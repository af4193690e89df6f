"""Print a study: table, gain, verdict, launch command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from results.records import LaunchState, TrialState
from runners.sglang.command import shell
from search_spaces.metrics import OUTPUT_TOK_S
from search_spaces.simulated_acceptance import NOTICE
from tuner.analysis.selected_trial import hint
from tuner.formatting import (
    describe,
    describe_figures,
    describe_gain,
    describe_number,
    describe_reasons,
    describe_resolved,
    describe_result,
    describe_unit,
    describe_values,
    shorten,
)
from tuner.reports.console import fold, print_table, reader, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from results.records import Launch, Trial
    from tuner.reports.report import StudyReport
    from tuner.verdict.scores import Leaderboard


_TIGHT = 90
"""Columns below which notes on a trial may take two lines."""

_NOTES = 14
"""Columns of the notes on a trial where the table is narrow: `baseline none,` at most."""

WIDE = 110
"""Columns from which on a table shows more than the essentials."""


def render(report: StudyReport) -> None:
    """Print the whole study to stdout."""
    console = reader()
    study = report.study
    title = f"study {study.name}"
    if study.simulated:
        title += ": every figure is simulated"
        title += f" with the profile {report.profile}" if report.profile is not None else ""
    title += f"; {NOTICE}" if report.simulated_acceptance else ""
    say(console, title, style="bold")
    for note in report.notes:
        say(console, f"note: {note}")
    print_table(console, _table(report, console.width))
    _failures(console, report)
    _warnings(console, report)
    _answer(console, report)
    if report.explainable and (where := hint(report)) is not None:
        say(console, where)


def render_trial(report: StudyReport, trial: Trial) -> None:
    """Print one trial with all its facts."""
    console = reader()
    mark = " (simulated)" if report.study.simulated else ""
    mark += f"; {NOTICE}" if report.simulated_acceptance else ""
    console.print(f"trial {trial.number} of study {report.study.name}{mark}", style="bold")
    rows = {
        "state": str(trial.state),
        "purpose": str(trial.purpose),
        "configuration": describe(trial.configuration, report.fixed),
        "the server ran": describe_resolved(trial),
        "score": describe_number(report.leaderboard.score(trial), ".3f"),
    }
    for key, value in rows.items():
        if value:
            say(console, f"  {key}: {value}")
    if trial.failure is not None:
        failure = trial.failure
        say(
            console,
            f"  {failure.kind} in {failure.phase}, fault of the {failure.fault}: {failure.message}",
        )
    for measurement in trial.measurements:
        console.print(f"  measured at {measurement.point.name}:", highlight=False)
        for name, value in describe_figures(measurement):
            say(console, f"    {name:<25}{value}")
        for reason in describe_reasons(measurement):
            say(console, f"    {reason}", "yellow")
    for launch in report.launches:
        if launch.id in trial.launches:
            own = launch.failure if launch.failure != trial.failure else None
            why = f": {own.message}" if own is not None else ""
            role = describe_role(launch, trial)
            say(console, f"  launch {launch.id}: {role}, log {launch.intent.log}{why}")


def _baseline_names(leaderboard: Leaderboard) -> dict[int, str]:
    """Names of baselines by trial number. Today's command can also be another baseline."""
    names: dict[int, str] = {}
    for name, trial in leaderboard.baselines.items():
        if trial is not None:
            known = names.get(trial.number)
            names[trial.number] = f"{known}, {name}" if known else name
    return names


def _table(report: StudyReport, width: int) -> Table:
    leaderboard = report.leaderboard
    wide, tight = width >= WIDE, width < _TIGHT
    # In a narrow terminal, whole names matter more than space between columns.
    table = Table(box=SIMPLE_HEAD, padding=(0, 1) if wide else 0)
    # In a narrow terminal only the configuration may fold.
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("configuration", overflow="fold")
    # The objective's metric comes first, unless it is the speed, which is always shown.
    metric = leaderboard.metric
    ranked = metric.name != OUTPUT_TOK_S.name
    if ranked:
        header = "\n".join(describe_unit(metric)[0].split(" ", 1))
        table.add_column(header, justify="right", no_wrap=True)
    wide = wide and metric.name != "ttft_p95_ms"
    unit = "simulated\ntok/s" if report.study.simulated else "tok/s"
    table.add_column(unit, justify="right", no_wrap=True)
    table.add_column("accept\nlength", justify="right", no_wrap=True)
    if wide:
        table.add_column("TTFT\np95 ms", justify="right", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("", no_wrap=not tight, max_width=_NOTES if tight else None)
    rows: list[tuple[list[str], str]] = []
    names = _baseline_names(leaderboard)

    def rank(trial: Trial) -> tuple[bool, float, int]:
        score = leaderboard.score(trial)
        return (score is None, -(score or 0.0), trial.number)

    for trial in sorted(leaderboard.trials, key=rank):
        notes = _notes(report, trial, names)
        first = trial.measurements[0] if trial.measurements else None
        score = leaderboard.score(trial)
        accept = first.accept_length if first is not None else None
        cells = [
            str(trial.number),
            describe(trial.configuration, report.fixed),
            *([describe_values(trial.measurements, metric)] if ranked else []),
            " / ".join(f"{m.output_tok_s:.1f}" for m in trial.measurements),
            f"{accept:.2f}" if accept is not None else "",
        ]
        if wide:
            cells.append(describe_number(first.ttft_p95_ms, ".0f") if first is not None else "")
        cells += [f"{score:.3f}" if score is not None else "", ", ".join(notes)]
        style = "bold green" if "best" in notes else "cyan" if trial.number in names else ""
        rows.append((cells, style))
    room = width - _others(table, [cells for cells, _ in rows])
    for cells, style in rows:
        cells[1] = fold(cells[1], max(room, 12))
        table.add_row(*cells, style=style)
    return table


def _notes(report: StudyReport, trial: Trial, baselines: Mapping[int, str]) -> list[str]:
    notes = []
    best = report.leaderboard.best
    if best is not None and trial.number == best.number:
        notes.append("best")
    if trial.number in baselines:
        notes.append(f"baseline {baselines[trial.number]}")
    if trial.state is TrialState.RUNNING and not report.owner_lives:
        notes.append("unfinished")
    elif trial.state is not TrialState.COMPLETE:
        notes.append(str(trial.state))
    return notes


def _others(table: Table, rows: list[list[str]]) -> int:
    """Width of a table without the configuration: columns, padding and edges."""
    padding = sum(table.padding[1::2])
    taken = len(table.columns) * (padding + 1) + 1
    for index, column in enumerate(table.columns):
        if index != 1:
            texts = [*str(column.header).split("\n"), *(cells[index] for cells in rows)]
            taken += min(max(map(len, texts)), column.max_width or 1000)
    return taken


def _failures(console: Console, report: StudyReport) -> None:
    shortened: int | None = None
    told: dict[int, set[str]] = {}
    alike: dict[tuple[TrialState, str], list[int]] = {}
    for trial in report.leaderboard.trials:
        if trial.failure is not None:
            if shortened is None and shorten(trial.failure.message) != trial.failure.message:
                shortened = trial.number
            for number in trial.launches:
                told.setdefault(number, set()).add(trial.failure.message)
            ended = (trial.state, shorten(trial.failure.message))
            alike.setdefault(ended, []).append(trial.number)
    for (state, message), numbers in alike.items():
        say(console, f"{_ended(state, numbers)}: {message}")
    judging = {t.judged_in for t in report.leaderboard.trials if t.state.is_verdict}
    for launch in report.launches:
        if launch.state not in {LaunchState.LOST, LaunchState.FAILED}:
            continue
        if launch.failure is not None and launch.failure.message in told.get(launch.id, ()):
            continue
        counted = "" if launch.id in judging and not launch.is_lost else ", not counted"
        why = (
            shorten(launch.failure.message)
            if launch.failure
            else "the tuner was stopped during this launch"
        )
        say(console, f"{_ended(launch.state, [launch.id])}{counted}: {why}")
    if shortened is not None:
        say(console, f"full message: `tuner show --study {report.study.name} --trial {shortened}`")


def _ended(state: TrialState | LaunchState, numbers: list[int]) -> str:
    """Format trials with one state: `"trial 3 failed"`, `"trials 3, 4 are inactive"`."""
    several = len(numbers) > 1
    thing = "trial" if isinstance(state, TrialState) else "launch"
    which = f"{thing}{'s' if several else ''} {', '.join(map(str, numbers))}"
    if state in {TrialState.FAILED, LaunchState.FAILED}:
        return f"{which} failed"
    if state is LaunchState.LOST:
        return f"{which} was lost"
    return f"{which} {'are' if several else 'is'} {state}"


def _warnings(console: Console, report: StudyReport) -> None:
    """One line per kind of warning, since most apply to every trial."""
    met: dict[str, tuple[str, list[int]]] = {}
    for trial in report.leaderboard.trials:
        for reason in (reason for m in trial.measurements for reason in m.warnings):
            code = reason.split(":", 1)[0]
            numbers = met.setdefault(code, (reason, []))[1]
            if trial.number not in numbers:
                numbers.append(trial.number)
    for reason, numbers in met.values():
        others = f" (and in {len(numbers) - 1} more)" if len(numbers) > 1 else ""
        say(console, f"warning, trial {numbers[0]}{others}: {reason}")


def _answer(console: Console, report: StudyReport) -> None:
    study, leaderboard = report.study, report.leaderboard
    spent = f"; {report.launches_spent} of {study.budget_launches} launches used"
    if study.stopped == "budget" and "launches" in (study.stop_reason or ""):
        spent = ""  # the reason says it
    if study.stopped is not None:
        state = f"stopped: {study.stopped} ({study.stop_reason})"
    elif report.owner_lives:
        state = "running"
    else:
        state = f"its tuner has ended; continue with `tuner resume --study {study.name}`"
    say(console, f"{state}{spent}")
    for line in report.hot_switch.lines() if report.hot_switch is not None else ():
        say(console, line)
    best = leaderboard.best
    say(console, f"verdict: {report.verdict.kind} ({report.verdict.reason})")
    if best is None:
        return
    mark = "simulated " if study.simulated else ""
    points = len(best.measurements)
    ranked = leaderboard.metric.name != OUTPUT_TOK_S.name
    unit = f" {describe_unit(leaderboard.metric)[0]}" if ranked else ""
    gains = [
        f"{describe_gain(gain, points)} over baseline '{name}' "
        f"({describe_values(base.measurements, leaderboard.metric)}{unit})"
        for name, base, gain in leaderboard.leads(best)
    ]
    result = describe_result(best.measurements, leaderboard.metric, mark)
    say(
        console,
        f"best: trial {best.number}, {result}" + "".join(f"; {g}" for g in gains),
        style="bold",
    )
    if report.command is not None:
        console.print(
            "launch command" + (" (found by simulation)" if study.simulated else "") + ":",
            highlight=False,
        )
        # Print without wrapping, so that the command can be copied.
        console.file.write(shell(report.command) + "\n")
        for caution in report.cautions:
            say(console, f"warning: {caution}", style="yellow")


def describe_role(launch: Launch, trial: Trial) -> str:
    """Return the role of a launch for one of its trials, and how the launch ended.

    `"measured here"`, `"measured here, after a switch, then lost"`,
    `"reference run after a switch (not scored)"`, `"no result here, failed"`.
    """
    ended = {LaunchState.LOST: "lost", LaunchState.FAILED: "failed"}.get(launch.state)
    if trial.judged_in == launch.id:
        what = f"measured here{_how(launch, trial)}"
        return f"{what}, then {ended}" if ended is not None else what
    if _is_anchor(launch, trial):
        if ended is not None and launch.ready_s is None:
            return f"reference run, {ended} before the server was ready"
        what = "reference run after a switch (not scored)"
        return f"{what}, then {ended}" if ended is not None else what
    if launch.state is LaunchState.RUNNING:
        return "running"
    return f"no result here, {ended or launch.state}"


def _how(launch: Launch, trial: Trial) -> str:
    if not launch.intent.settings:
        return ""
    started = launch.intent.configuration.setting == trial.configuration.setting
    return ", setting of the start" if started else ", after a switch"


def _is_anchor(launch: Launch, trial: Trial) -> bool:
    """Whether the launch measured a trial again that another launch had measured."""
    judged_before = trial.judged_in is not None and trial.judged_in < launch.id
    return judged_before and bool(launch.intent.settings) and launch.trials[:1] == (trial.number,)
