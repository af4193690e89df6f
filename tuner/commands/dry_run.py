"""`tuner sweep --dry-run`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runners.base import LaunchCommand
from runners.sglang_command import shell
from search_spaces.secrets import is_export_only
from search_spaces.simulated_acceptance import MARK, simulates_acceptance
from tuner.commands.switch_plan import switch_plan
from tuner.json_text import dump
from tuner.words import counted, describe, describe_choices, fixed_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.studies import NewStudy
    from runners.base import Runner
    from tuner.assembly import Problem

_ASSUMED_MIN = 5
"""Minutes of a launch with its windows, where nothing is known: a guess, and called one."""


def dry_run(problem: Problem, servers: Runner, new: NewStudy, *, as_json: bool) -> None:
    """Says what a sweep would search, how long that may take, and what it would launch first."""
    points, budget, hours = len(problem.space), new.budget_launches, new.budget_hours
    switched = switch_plan(problem, servers.no_switch())
    notes = [*problem.notes, *servers.remarks()]
    needed = switched.needed.launches
    if as_json:
        data: dict[str, Any] = {
            "study": problem.study.name,
            "simulated": servers.simulated,
            "simulated_acceptance": simulates_acceptance(problem.study),
            "legal_points": points,
            "planner": new.planner,
            "budget": {"launches": budget, "hours": hours},
            "expected_inactive": len(problem.expected),
            "launches_for_all_points": needed,
            "hot_switch": switched.to_dict(),
            "baselines": {
                name: {
                    "configuration": configuration.to_dict(),
                    "command": shell(servers.command(configuration)),
                }
                for name, configuration in problem.baselines.items()
            },
            "notes": notes,
        }
        sys.stdout.write(dump(data))
        return
    launches = min(budget, needed) if budget is not None else needed
    head = (
        f"study {problem.study.name}: {counted(points, 'legal configuration')}, "
        f"planner {new.planner}, at most {counted(launches, 'launch')} ({needed} would measure "
        "them all, baselines included)"
    )
    head += f"; {MARK}" if simulates_acceptance(problem.study) else ""
    lines = [
        head,
        # Its line says why nothing is switched.
        *(f"note: {note}" for note in notes if note != switched.remark),
        *switched.lines(),
        *_duration(launches, hours, servers, most=switched.most_settings),
        "",
        "searched:",
        *(f"  {name}: {choices}" for name, choices in describe_choices(problem.study.space)),
    ]
    for name, configuration in problem.baselines.items():
        described = describe(configuration, fixed_names(problem.study))
        lines += ["", f"first, baseline '{name}': {described}"]
        lines += _wrapped(servers.command(configuration))
    lines += ["", "Trial servers listen on an address and port of their own."]
    sys.stdout.write("\n".join(lines) + "\n")


def _duration(launches: int, hours: float | None, servers: Runner, *, most: int) -> Iterator[str]:
    minutes = launches * _ASSUMED_MIN
    whole = f"{minutes} minutes" if minutes < 120 else f"{minutes / 60:.3g} hours"
    many = f", and more where one measures up to {most} settings" if most > 1 else ""
    limit = f"; budget.hours ends it after {hours:g} hours at work" if hours is not None else ""
    yield (
        "time: not known before the first launch. A large model takes minutes to start, and its "
        f"windows come on top: at {_ASSUMED_MIN} minutes each {counted(launches, 'launch')} would "
        f"take {whole}{many}{limit}"
    )
    if servers.simulated:
        yield f"  (of the study's clock, which runs {servers.time_scale:g} times as fast simulated)"


def _wrapped(command: LaunchCommand) -> Iterator[str]:
    """A trial server's command, a flag on each line, without what only an export has."""
    start, flags = command.argv[:3], command.argv[3:]
    lines = [shell(replace(command, argv=start))]
    if command.env or command.unset:
        variables = shell(replace(command, argv=(), prefix=()))
        lines = [variables, shell(LaunchCommand(start, prefix=command.prefix))]
    words: list[str] = []
    for word in (*flags, "--"):
        if word.startswith("--") and words:
            if not is_export_only(words[0].removeprefix("--")):
                lines.append(shell(LaunchCommand(tuple(words))))
            words = []
        words.append(word)
    last = len(lines) - 1
    for index, line in enumerate(lines):
        yield f"{'  ' if index == 0 else '    '}{line}{' ' + chr(92) if index < last else ''}"
