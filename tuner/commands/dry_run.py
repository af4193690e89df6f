"""`tuner sweep --dry-run`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runners.base import HotSwitch, LaunchCommand, remarks_of
from runners.sglang.command import shell
from search_spaces.secrets import is_export_only
from search_spaces.simulated_acceptance import NOTICE, simulates_acceptance
from search_spaces.space.baselines import PRODUCTION
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
"""Assumed minutes per launch, with its windows. The output says that it is an assumption."""


def dry_run(problem: TuningProblem, servers: Runner, new: NewStudy, *, as_json: bool) -> None:
    """Print the search space, the estimated time and the first launches."""
    points, budget, hours = len(problem.space), new.budget_launches, new.budget_hours
    switched = switch_plan(problem, servers.no_switch() if isinstance(servers, HotSwitch) else None)
    notes = [*problem.notes, *remarks_of(servers)]
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
        "all of them and the baselines)"
    )
    head += f"; {NOTICE}" if simulates_acceptance(problem.study) else ""
    lines = [
        head,
        # The hot switch line has this remark already.
        *(f"note: {note}" for note in notes if not switched.says(note)),
        *switched.lines(),
        *_duration(launches, hours, servers, most=switched.most_settings),
        "",
        "searched:",
        *(f"  {name}: {choices}" for name, choices in describe_choices(problem.study.space)),
    ]
    for name, configuration in problem.baselines.items():
        described = describe(configuration, fixed_names(problem.study))
        lines += ["", f"first launches: baseline '{name}': {described}"]
        lines += _wrapped(servers.command(configuration))
    lines += ["", "Trial servers get their own address and port."]
    sys.stdout.write("\n".join(lines) + "\n")


def _duration(launches: int, hours: float | None, servers: Runner, *, most: int) -> Iterator[str]:
    minutes = launches * _ASSUMED_MIN
    whole = f"{minutes} minutes" if minutes < 120 else f"{minutes / 60:.3g} hours"
    many = f", or more, because one launch measures up to {most} settings" if most > 1 else ""
    limit = f"; budget.hours stops the study after {hours:g} hours" if hours is not None else ""
    yield (
        "time: unknown before the first launch. Assuming "
        f"{_ASSUMED_MIN} minutes each, {counted(launches, 'launch')} take {whole}{many}{limit}"
    )
    if servers.simulated:
        yield f"  (simulated time, which runs {servers.time_scale:g} times as fast)"


def _wrapped(command: LaunchCommand) -> Iterator[str]:
    """A server's launch command, one flag per line, without flags that only exports have."""
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
    """Launches of one drafter that measure several settings.

    Attributes:
        drafter: Algorithm and topk.
        launches: Number of launches.
        configurations: Number of configurations measured in them.
        settings: Their settings, ascending.
        anchor: Name of the baseline that is the reference run; `None`: a point of the search.
    """

    drafter: Drafter
    launches: int
    configurations: int
    settings: tuple[Setting, ...]
    anchor: str | None

    def to_dict(self) -> dict[str, Any]:
        """Entry of `shared` in the JSON output."""
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
        """`"steps 1, 2, 5"`, or steps with draft tokens for trees."""
        if self.drafter.topk == 1:
            return "steps " + ", ".join(str(s.num_steps) for s in self.settings)
        shapes = ", ".join(f"{s.num_steps}/{s.num_draft_tokens}" for s in self.settings)
        return f"steps/draft tokens {shapes}"


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """Plan of hot switching for a study.

    Attributes:
        asked: Whether the user allows hot switching.
        needed: Number of launches with and without it.
        shared: Shared launches per drafter.
        impossible: Why no server can be switched; `None`: at least one can.
    """

    asked: bool
    needed: Needed
    shared: tuple[Shared, ...]
    impossible: str | None = None

    def says(self, note: str) -> bool:
        """Whether the lines of this plan give the note's reason."""
        return self.impossible is not None and note.endswith(self.impossible)

    @property
    def most_settings(self) -> int:
        """Largest number of settings in one launch."""
        shared = {drafter.drafter for drafter in self.shared if drafter.launches}
        return max(
            (len(g) for g in self.needed.shared if g[0].speculation.drafter in shared), default=1
        )

    def to_dict(self) -> dict[str, Any]:
        """`hot_switch` in the JSON output."""
        return {
            "asked": self.asked,
            "launches": self.needed.launches,
            "launches_without": self.needed.separate,
            "shared": [part.to_dict() for part in self.shared],
        }

    def lines(self) -> Iterator[str]:
        """The plan as text."""
        if not self.asked:
            yield NOT_ASKED
            return
        if self.impossible is not None:
            yield f"hot switch: off: {self.impossible}"
            return
        if not self.shared:
            yield "hot switch: no settings can share a launch"
            return
        shared = [part for part in self.shared if part.launches]
        if not shared:
            yield "hot switch: no settings can share a launch"
            return
        yield (
            f"hot switch: {counted(self.needed.launches, 'launch')} instead of "
            f"{self.needed.separate} for the whole space:"
        )
        for part in shared:
            yield (
                f"  {part.drafter}: {part.configurations} configurations ({part.described}), "
                f"{counted(part.launches, 'launch')}"
            )
            first = f"baseline '{part.anchor}'" if part.anchor is not None else "its first setting"
            yield f"  reference run: {first}, launched separately and measured again after a switch"
        yield (
            "  Switched results count only if the reference check passes; otherwise every setting "
            "is launched separately."
        )


def switch_plan(problem: TuningProblem, impossible: str | None = None) -> SwitchPlan:
    """Plan hot switching from the search space.

    Args:
        problem: The tuning problem.
        impossible: Result of `HotSwitch.no_switch`.
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
    """Number of shared launches. A group of two needs none: one of them is the reference run."""
    if len(groups) == 1 and len(groups[0]) == 2:
        return 0
    return len(groups)


def _anchor(problem: TuningProblem, groups: list[tuple[Configuration, ...]]) -> str | None:
    known = {c for group in groups for c in group if may_anchor(c, group)}
    names = [name for name, c in problem.baselines.items() if c in known]
    # Baselines are measured in this order, today's command last.
    return min(names, key=lambda name: name == PRODUCTION, default=None)
