"""Final output of `tuner init`: the file, the expected cost, notes and the next commands."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from search_spaces.configuration import NO_SPECULATION
from search_spaces.study_file.warnings import warnings
from tuner.formatting import counted
from tuner.init.study_text import RUNNING, WIDTH
from tuner.planners.registry import auto_planner
from tuner.reports.json_text import dump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from search_spaces.launch_commands import Container, LaunchText
    from search_spaces.study_file.study import Study
    from tuner.init.study_text import Proposal
    from tuner.studies.assembly import TuningProblem

_NO_BREAK = "\xa0"
_LIVE_WORD = re.compile(r"[\w@%+=:,./~${}-]+")
_SKIPPED_OPTIONS = ("-d", "--detach", "-it", "-ti", "-i", "-t", "--interactive", "--tty")
_SKIPPED_WITH_VALUE = ("-p", "--publish", "--name", "--restart")
_FILE_KINDS = {
    "compose": "a compose file",
    "kubernetes": "a Kubernetes manifest",
    "dockerfile": "a Dockerfile",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Result of `tuner init`.

    Attributes:
        file: Path of the study file; `-` for stdout.
        proposal: Content of the study file.
        problem: The study as read back, with its space and baselines.
        launch: Today's command, if there is one.
        assumptions: Notes on the hardware.
    """

    file: str
    proposal: Proposal
    problem: TuningProblem
    launch: LaunchText | None
    assumptions: tuple[str, ...]

    @property
    def study(self) -> Study:
        """The study as read back."""
        return self.problem.study

    @property
    def planner(self) -> str:
        """Planner of a sweep."""
        return self.problem.planner(self.study.budget.launches)

    @property
    def next_commands(self) -> tuple[str, ...]:
        """Commands to type next."""
        file = "FILE"
        if self.file != "-":
            # Other commands read a word without a slash as the name of a shipped study.
            file = shlex.quote(self.file if "/" in self.file else f"./{self.file}")
        return (
            f"tuner validate --study {file}",
            f"tuner sweep --study {file} --dry-run",
            f"tuner sweep --study {file}",
        )

    @property
    def notes(self) -> list[str]:
        """Assumptions, parts that were left out, and warnings."""
        proposal, today = self.proposal, self.proposal.today
        notes = [*self.assumptions, *today.notes, *proposal.speculations.notes]
        if proposal.running is not None and today.command is not None:
            notes.append(
                f"`{RUNNING}` is fixed at {proposal.running} for all configurations. Without the "
                "flag, as in today's command, SGLang limits requests to 48 only with speculation "
                "(0.5.23). Raise the value in the study if you serve more requests at a time"
            )
        running, most = today.number(RUNNING, 0), max(proposal.load.concurrencies or (0,))
        if 0 < running < most:
            notes.append(f"requests wait at concurrency {most}: today's {RUNNING} is {running}")
        known = "\n".join(notes)
        # Notes on the command are not repeated for the study that contains the command.
        notes += [note for note in warnings(self.study) if not _is_known(note, known)]
        return [_sentence(note) for note in dict.fromkeys([*notes, *self.problem.notes]) if note]

    @property
    def searched(self) -> list[str]:
        """Names of the algorithms and settings that the study varies."""
        names = []
        for part in self.proposal.speculations.parts:
            if part.algorithm == NO_SPECULATION:
                names.append("no speculation")
            elif part.adaptive:
                names.append(f"{part.algorithm} adaptive")
            elif isinstance(steps := part.keys.get("num_steps"), dict):
                names.append(f"{part.algorithm} ({steps['from']} to {steps['to']} steps)")
            else:
                names.append(part.algorithm)
        collectives = self.proposal.collectives
        return [*names, *(choice.name for choice in (*collectives.flags, *collectives.env))]

    @property
    def container(self) -> tuple[str, ...]:
        """How to run the tuner where today's server runs, if that is a container."""
        container = self.launch.container if self.launch is not None else None
        if container is None or container.engine.endswith(" exec"):
            return ()
        how = _in_a_container if container.engine.endswith(" run") else _in_a_described_container
        advice = how(container, self.proposal.today.inherited)
        if container.image:
            use = (
                f"Exports for containers use today's image with `--image {_word(container.image)}`."
            )
            advice += _wrapped(use)
        return tuple(advice)


def _is_known(note: str, known: str) -> bool:
    if note.startswith("production.command: "):
        return note.removeprefix("production.command: ") in known
    flag = re.match(r"server\.flags\.([\w.-]+): ", note)
    return flag is not None and f"`--{flag[1]}`" in known


def _sentence(note: str) -> str:
    """Return a note with a capital, unless it begins with a key or a flag."""
    word = note.split(" ", 1)[0]
    return f"{note[0].upper()}{note[1:]}" if word.isalpha() else note


def print_text(summary: Summary, out: TextIO) -> None:
    """Print the result as text."""
    proposal, study = summary.proposal, summary.study
    today = proposal.today
    rows = [
        ("model", today.model + (f", draft {today.draft}" if today.draft else "")),
        ("hardware", proposal.hardware.describe()),
        ("searched", ", ".join(summary.searched)),
        ("workload", _workload(study)),
        ("baselines", ", ".join(summary.problem.baselines)),
        ("budget", _budget(summary)),
    ]
    file = "the study" if summary.file == "-" else summary.file
    lines = [f"wrote {file}: study {study.name}, from {proposal.origin}"]
    for name, value in rows:
        lines += _wrapped(value, f"  {name:<10} ", " " * 13)
    if notes := summary.notes:
        lines += ["", "notes:"]
        for note in notes:
            lines += _wrapped(note, "  - ", "    ")
    if summary.container:
        lines += ["", *summary.container]
    lines += ["", "next:", *(f"  {command}" for command in summary.next_commands)]
    out.write("\n".join(lines) + "\n")


def print_json(summary: Summary) -> None:
    """Print the result as JSON."""
    proposal, problem = summary.proposal, summary.problem
    hardware = proposal.hardware
    data: dict[str, Any] = {
        "file": summary.file,
        "study": summary.study.name,
        "model": proposal.today.model,
        "draft": proposal.today.draft,
        "hardware": {
            "gpus": hardware.gpus,
            "name": hardware.name or None,
            "interconnect": hardware.link,
            "source": hardware.source or None,
        },
        "searched": summary.searched,
        "legal_points": len(problem.space),
        "planner": summary.planner,
        "launches": summary.study.budget.launches,
        "launches_for_all_points": problem.needed().launches,
        "baselines": list(problem.baselines),
        "notes": summary.notes,
        "container": list(summary.container) or None,
        "next": list(summary.next_commands),
    }
    sys.stdout.write(dump(data))


def _budget(summary: Summary) -> str:
    budget, points = summary.study.budget, len(summary.problem.space)
    hours = f", at most {budget.hours:g} hours" if budget.hours else ""
    configurations = counted(points, "configuration")
    if summary.planner == auto_planner("all"):
        needed = summary.problem.needed().launches
        return f"{needed} of {budget.launches} launches measure all {configurations}{hours}"
    return f"{counted(budget.launches, 'launch')} for {configurations}; TPE searches{hours}"


def _workload(study: Study) -> str:
    workload = study.to_workload()
    prompts = " + ".join(name for name, _ in workload.prompts)
    closed = [str(point.concurrency) for point in workload.points if not point.is_open]
    points = [point.name for point in workload.points if point.is_open]
    if closed:
        points.insert(0, f"concurrency {' and '.join(closed)}")
    return f"{prompts}, {workload.output_tokens} tokens on average, at {', '.join(points)}"


def _in_a_container(container: Container, inherited: Sequence[str]) -> list[str]:
    """How to start a container like today's, with a shell instead of the server."""
    words = [*container.engine.split(), "-it"]
    options = iter(container.options)
    for option in options:
        if option in _SKIPPED_WITH_VALUE:
            next(options, None)
        elif option not in _SKIPPED_OPTIONS and option.split("=")[0] not in _SKIPPED_WITH_VALUE:
            words.append(option)
    words += [word for name in inherited for word in ("-e", name)]
    command = " ".join(map(_word, words))
    why = (
        "Today's command starts a container, which the tuner cannot reliably stop from outside. "
        "Run the tuner inside a container with the same options:"
    )
    return [
        *_wrapped(why),
        f'  {command} -v "$PWD":"$PWD" -w "$PWD" {_word(container.image)} bash',
        "Install the tuner there with `pip install`, and continue as below.",
    ]


def _in_a_described_container(container: Container, _inherited: Sequence[str]) -> list[str]:
    """How to get a shell in a container that a file describes, instead of the server."""
    kind = _FILE_KINDS.get(container.engine, container.engine)
    image = f" of image {container.image}" if container.image else ""
    here = '-v "$PWD":"$PWD" -w "$PWD"'
    why = f"Today's server runs in a container{image} ({kind}). Run the tuner in the same container"
    if container.engine == "compose":
        service = _word(container.service or "SERVICE")
        why += ". Beside the compose file:"
        commands = [
            f"docker compose stop {service}",
            f"docker compose run --rm {here} --entrypoint bash {service}",
        ]
    elif container.engine == "dockerfile":
        why += ". Beside the Dockerfile:"
        commands = [
            "docker build -t sglang-here .",
            f"docker run -it --rm --gpus all --ipc=host {here} --entrypoint bash sglang-here",
        ]
    else:
        named = f" of container {container.service}" if container.service else ""
        option = f" -c {_word(container.service)}" if container.service else ""
        why += (
            f". Copy the manifest, remove its probes, replace command and args{named} by "
            "`command: [sleep, infinity]`, apply the copy instead of today's, and open a shell:"
        )
        commands = [f"kubectl exec -it POD{option} -- bash"]
    return [
        *_wrapped(why),
        *(f"  {command}" for command in commands),
        "Install the tuner there with `pip install`, copy the study, and continue as below.",
    ]


def _word(word: str) -> str:
    """Quote a word for a shell that still expands `~` and `$HOME`."""
    return word if _LIVE_WORD.fullmatch(word) else shlex.quote(word)


def _wrapped(text: str, first: str = "", others: str = "") -> list[str]:
    """Return lines of at most `WIDTH` columns; text in backticks is for copying and not split."""
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        whole,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
