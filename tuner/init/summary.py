"""Summary of `tuner init`: the file, the expected cost and the next commands."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from search_spaces.configuration import NO_SPECULATION
from search_spaces.study_file.warnings import warnings
from tuner.formatting import counted
from tuner.init.commented_yaml import wrapped
from tuner.init.inside import container_advice
from tuner.init.study_text import RUNNING
from tuner.planners.registry import auto_planner
from tuner.reports.json_text import dump
from tuner.studies import assembly

if TYPE_CHECKING:
    from search_spaces.launch_commands import LaunchText
    from search_spaces.study_file.study import Study
    from tuner.init.study_text import Proposal


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a sweep.

    Attributes:
        points: Number of legal configurations.
        planner: Name of the planner.
        needed: Launches that measure all points, including baselines.
        baselines: Baselines by name.
        notes: Skipped points and baselines.
    """

    points: int
    planner: str
    needed: int
    baselines: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, study: Study) -> Plan:
        """Plan a sweep of the study."""
        servers = assembly.make_servers(study.runner, study, seed=0)
        problem = assembly.build_problem(study, servers, hot_switch=True)
        return cls(
            points=len(problem.space),
            planner=problem.planner(study.budget.launches),
            needed=problem.needed().launches,
            baselines=tuple(problem.baselines),
            notes=problem.notes,
        )


@dataclass(frozen=True, slots=True)
class Written:
    """Result of `tuner init`.

    Attributes:
        file: Path of the file; `-` is stdout.
        study: The study as parsed.
        plan: Plan of a sweep.
        proposal: Content of the file.
        launch: Today's command, if any.
        notes: Assumptions about the hardware.
    """

    file: str
    study: Study
    plan: Plan
    proposal: Proposal
    launch: LaunchText | None
    notes: tuple[str, ...]

    @property
    def argument(self) -> str:
        """The file as an argument of other commands, which read a bare word as a name."""
        if self.file == "-":
            return "FILE"
        return shlex.quote(self.file if "/" in self.file else f"./{self.file}")

    @property
    def next_commands(self) -> tuple[str, ...]:
        """Commands to run next."""
        return (
            f"tuner validate --study {self.argument}",
            f"tuner sweep --study {self.argument} --dry-run",
            f"tuner sweep --study {self.argument}",
        )

    def all_notes(self) -> list[str]:
        """Notes on assumptions and on everything that was left out."""
        proposal = self.proposal
        notes = [*self.notes, *proposal.today.notes, *proposal.speculations.notes]
        if proposal.running is not None and proposal.today.command is not None:
            notes.append(
                f"`{RUNNING}` is held at {proposal.running}, so that all run alike; today's "
                "command leaves it to SGLang, which caps it at 48 with speculation and not without "
                "(0.5.23). Raise it in the study if you serve more at a time"
            )
        running, most = proposal.today.number(RUNNING, 0), max(proposal.load.concurrencies or (0,))
        if 0 < running < most:
            notes.append(f"{RUNNING} {running} of today makes requests wait at concurrency {most}")
        said = "\n".join(notes)
        # Notes on the command are not repeated for the study.
        notes += [note for note in warnings(self.study) if not _is_said(note, said)]
        return [_sentence(note) for note in dict.fromkeys([*notes, *self.plan.notes]) if note]


def _is_said(note: str, said: str) -> bool:
    if note.startswith("production.command: "):
        return note.removeprefix("production.command: ") in said
    flag = re.match(r"server\.flags\.([\w.-]+): ", note)
    return flag is not None and f"`--{flag[1]}`" in said


def _sentence(note: str) -> str:
    """Start the text with a capital, unless it begins with a key or flag."""
    word = note.split(" ", 1)[0]
    return f"{note[0].upper()}{note[1:]}" if word.isalpha() else note


def print_words(written: Written, out: TextIO) -> None:
    """Print the summary as text."""
    proposal, plan = written.proposal, written.plan
    today = proposal.today
    what = "the study" if written.file == "-" else written.file
    rows = [
        ("model", today.model + (f", draft {today.draft}" if today.draft else "")),
        ("hardware", proposal.hardware.describe()),
        ("searched", ", ".join(_searched(proposal))),
        ("workload", _workload(written.study)),
        ("baselines", ", ".join(plan.baselines)),
        ("budget", _budget(written.study, plan)),
    ]
    lines = [f"wrote {what}: study {written.study.name}, from {proposal.origin}"]
    for name, value in rows:
        lines += wrapped(value, f"  {name:<10} ", " " * 13)
    if notes := written.all_notes():
        lines += ["", "notes:"]
        for note in notes:
            lines += wrapped(note, "  - ", "    ")
    if container := container_advice(written.launch, written.proposal.today.inherited):
        lines += ["", *container]
    lines += ["", "next:", *(f"  {command}" for command in written.next_commands)]
    out.write("\n".join(lines) + "\n")


def print_json(written: Written) -> None:
    """Print the summary as JSON."""
    proposal, plan = written.proposal, written.plan
    hardware = proposal.hardware
    data: dict[str, Any] = {
        "file": written.file,
        "study": written.study.name,
        "model": proposal.today.model,
        "draft": proposal.today.draft,
        "hardware": {
            "gpus": hardware.gpus,
            "name": hardware.name or None,
            "interconnect": hardware.link,
            "source": hardware.source or None,
        },
        "searched": _searched(proposal),
        "legal_points": plan.points,
        "planner": plan.planner,
        "launches": written.study.budget.launches,
        "launches_for_all_points": plan.needed,
        "baselines": list(plan.baselines),
        "notes": written.all_notes(),
        "container": list(container_advice(written.launch, written.proposal.today.inherited))
        or None,
        "next": list(written.next_commands),
    }
    sys.stdout.write(dump(data))


def _budget(study: Study, plan: Plan) -> str:
    launches, points = study.budget.launches, plan.points
    hours = f", at most {study.budget.hours:g} hours" if study.budget.hours else ""
    configurations = "configuration" if points == 1 else "configurations"
    if plan.planner == auto_planner("all"):
        return f"{plan.needed} of {launches} launches measure all {points} {configurations}{hours}"
    return f"{counted(launches, 'launch')} for {points} {configurations}; TPE searches{hours}"


def _searched(proposal: Proposal) -> list[str]:
    parts = []
    for part in proposal.speculations.parts:
        if part.algorithm == NO_SPECULATION:
            parts.append("no speculation")
        elif part.flags.get("speculative-adaptive"):
            parts.append(f"{part.algorithm} adaptive")
        elif part.steps is not None:
            parts.append(f"{part.algorithm} ({part.steps[0]} to {part.steps[1]} steps)")
        else:
            parts.append(part.algorithm)
    tuned = (*proposal.collectives.flags, *proposal.collectives.env)
    return [*parts, *(choice.name for choice in tuned)]


def _workload(study: Study) -> str:
    workload = study.to_workload()
    prompts = " + ".join(name for name, _ in workload.prompts)
    closed = [str(point.concurrency) for point in workload.points if not point.is_open]
    points = [point.name for point in workload.points if point.is_open]
    if closed:
        points.insert(0, f"concurrency {' and '.join(closed)}")
    return f"{prompts}, {workload.output_tokens} tokens on average, at {', '.join(points)}"
