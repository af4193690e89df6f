"""`tuner sweep --dry-run`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runners.base import LaunchCommand
from runners.process.runner import launches_alone
from runners.sglang.command import shell
from search_spaces.secrets import is_export_only
from search_spaces.simulated_acceptance import MARK, simulates_acceptance
from search_spaces.space.baseline import PRODUCTION
from tuner.formatting import counted, describe, describe_choices, fixed_names
from tuner.hot_switch.report import NOT_ASKED
from tuner.planners.launches import may_anchor
from tuner.reports.json_text import dump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.studies import NewStudy
    from runners.base import Runner
    from search_spaces.configuration import Configuration, Drafter, Setting
    from tuner.planners.launches import Needed
    from tuner.studies.assembly import TuningProblem


_ASSUMED_MIN = 5
"""Minutes of a launch with its windows, where nothing is known: a guess, and called one."""


def dry_run(problem: TuningProblem, servers: Runner, new: NewStudy, *, as_json: bool) -> None:
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


@dataclass(frozen=True, slots=True)
class Shared:
    """One drafter's launches for several settings.

    Attributes:
        drafter: Its algorithm and topk.
        launches: So many.
        configurations: Measured in them, the anchor's among them.
        settings: Of those, ascending.
        anchor: The baseline whose own launch is the anchor; `None`: one of the search.
    """

    drafter: Drafter
    launches: int
    configurations: int
    settings: tuple[Setting, ...]
    anchor: str | None

    def to_dict(self) -> dict[str, Any]:
        """An entry of `shared` in a dry run's JSON."""
        return {
            "algorithm": self.drafter.algorithm,
            "topk": self.drafter.topk,
            "launches": self.launches,
            "configurations": self.configurations,
            "steps": [setting.num_steps for setting in self.settings],
            "draft_tokens": [setting.num_draft_tokens for setting in self.settings],
            "anchor": self.anchor,
        }

    @property
    def described(self) -> str:
        """`"steps 1, 2, 5"`; of trees with their draft tokens."""
        if self.drafter.topk == 1:
            return "steps " + ", ".join(str(s.num_steps) for s in self.settings)
        shapes = ", ".join(f"{s.num_steps}/{s.num_draft_tokens}" for s in self.settings)
        return f"steps/draft tokens {shapes}"


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """What hot switching will do for a study.

    Attributes:
        asked: Whether it may.
        needed: Launches with and without it.
        shared: By drafter.
        impossible: Why no server of the study can be switched; `None`: some can.
    """

    asked: bool
    needed: Needed
    shared: tuple[Shared, ...]
    impossible: str | None = None

    @property
    def remark(self) -> str | None:
        """What the runner says of it where nothing can be switched: the lines say it shorter."""
        return launches_alone(self.impossible) if self.impossible is not None else None

    @property
    def most_settings(self) -> int:
        """Of one launch."""
        shared = {drafter.drafter for drafter in self.shared if drafter.launches}
        return max(
            (len(g) for g in self.needed.shared if g[0].speculation.drafter in shared), default=1
        )

    def to_dict(self) -> dict[str, Any]:
        """`hot_switch` of a dry run's JSON."""
        return {
            "asked": self.asked,
            "launches": self.needed.launches,
            "launches_without": self.needed.alone,
            "shared": [part.to_dict() for part in self.shared],
        }

    def lines(self) -> Iterator[str]:
        """The same in words."""
        if not self.asked:
            yield NOT_ASKED
            return
        if self.impossible is not None:
            yield f"hot switch: off: {self.impossible}"
            return
        if not self.shared:
            yield "hot switch: no launch can be shared"
            return
        shared = [part for part in self.shared if part.launches]
        if not shared:
            yield "hot switch: no launch can be shared here, an anchor's own left aside"
            return
        yield (
            f"hot switch: {counted(self.needed.launches, 'launch')} for all of it in place of "
            f"{self.needed.alone}:"
        )
        for part in shared:
            yield (
                f"  {part.drafter}: {part.configurations} configurations ({part.described}), "
                f"{counted(part.launches, 'launch')} to be switched through"
            )
            first = (
                f"baseline '{part.anchor}'"
                if part.anchor is not None
                else "one of its settings, searched first"
            )
            yield f"  its anchor: {first}, launched by itself, then measured again, switched to"
        yield "  nothing switched is scored before an anchor agrees; else each has its own launch"


def switch_plan(problem: TuningProblem, impossible: str | None = None) -> SwitchPlan:
    """Works it out from the space.

    Args:
        problem: What is to be solved.
        impossible: `Runner.no_switch`.
    """
    needed = problem.needed()
    by_drafter: dict[Drafter, list[tuple[Configuration, ...]]] = {}
    for group in needed.shared:
        by_drafter.setdefault(group[0].speculation.drafter, []).append(group)
    shared = tuple(
        Shared(
            drafter,
            _switched(groups),
            sum(map(len, groups)),
            tuple(sorted({c.setting for group in groups for c in group}, key=lambda s: s.size)),
            _anchor(problem, groups),
        )
        for drafter, groups in by_drafter.items()
    )
    return SwitchPlan(problem.launches.hot_switch, needed, shared, impossible)


def _switched(groups: list[tuple[Configuration, ...]]) -> int:
    """Launches for several settings; what is left of two, one of them launched alone, is one."""
    if len(groups) == 1 and len(groups[0]) == 2:
        return 0
    return len(groups)


def _anchor(problem: TuningProblem, groups: list[tuple[Configuration, ...]]) -> str | None:
    known = {c for group in groups for c in group if may_anchor(c, group)}
    names = [name for name, c in problem.baselines.items() if c in known]
    # Measured in this order; today's command last.
    return min(names, key=lambda name: name == PRODUCTION, default=None)
