"""Ask the SGLang of a server environment, in one process, what it makes of launches."""

from __future__ import annotations

import json
import signal
from collections import ChainMap
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from runners.base import EnvironmentUnusableError
from runners.sglang.command import sglang_command
from search_spaces.gpus import gpus_of_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runners.process.environment import ServerEnvironment
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study


@dataclass(frozen=True, slots=True)
class PretendedGpu:
    """What SGLang's handling of arguments asks a machine about its GPU.

    Attributes:
        name: NVIDIA's.
        capability: Compute capability.
        memory_mib: As `nvidia-smi` shows it.
    """

    name: str
    capability: tuple[int, int]
    memory_mib: int

    def to_dict(self) -> dict[str, Any]:
        """As the process that asks SGLang reads it."""
        return asdict(self)


GPUS = (
    PretendedGpu("NVIDIA H100", (9, 0), 81_559),
    PretendedGpu("NVIDIA H200", (9, 0), 143_771),
    PretendedGpu("NVIDIA B200", (10, 0), 183_359),
    PretendedGpu("NVIDIA RTX PRO 6000 Blackwell", (12, 0), 97_887),
    PretendedGpu("NVIDIA L40S", (8, 9), 46_068),
    PretendedGpu("NVIDIA A100", (8, 0), 81_920),
)
"""Known ones; the first is assumed where nothing says which."""


def gpu_named(name: str) -> PretendedGpu | None:
    """The known GPU that a name is one of (`"h200"`, `"NVIDIA H100 80GB HBM3"`)."""
    wanted = _letters(name)
    if not wanted:
        return None
    for gpu in GPUS:
        known = _letters(gpu.name)
        if known in wanted or wanted in known:
            return gpu
    return None


def gpu_to_pretend(
    study: Study, *, gpus_here: int, named: Iterable[str] = ()
) -> PretendedGpu | None:
    """The GPU that SGLang is told of; `None` where it sees its own machine as it is.

    Args:
        study: A server on another device than CUDA has no use for one.
        gpus_here: GPUs that the server environment has.
        named: Names of those that are meant, the likeliest first.
    """
    if gpus_here or not gpus_of_server(study.server.flags):
        return None
    found = (gpu_named(name) for name in named)
    return next((gpu for gpu in found if gpu is not None), GPUS[0])


def _letters(name: str) -> str:
    words = name.lower().replace("nvidia", "").replace("-", " ").split()
    return "".join(words)


_DERIVED = frozenset({"model_path", "tokenizer_path", "speculative_draft_model_path"})
"""Fields whose resolved value is another spelling of what was asked for."""


class NotAskedError(Exception):
    """SGLang could not be asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What SGLang makes of one launch.

    Attributes:
        refused: Its words where it would end at its start, else `None`.
        unanswered: Why nothing can be said: the model's configuration is not here, say.
        values: What it would run with, by field (`"attention_backend"`).
        asked: Those of its fields that the launch gives, as its parser read them.
    """

    refused: str | None = None
    unanswered: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rewritten(self) -> dict[str, tuple[Any, Any]]:
        """What it would run with in place of what was asked for, by field: asked, run."""
        return {
            name: (value, self.values[name])
            for name, value in self.asked.items()
            if name not in _DERIVED and name in self.values and self.values[name] != value
        }


@dataclass(frozen=True, slots=True)
class Answers:
    """SGLang's answers to a list of launches.

    Attributes:
        version: SGLang's.
        import_s: Seconds until it was imported.
        answers: In the order of the launches; fewer where the time was up.
        cut_short: Why there are fewer, where it was not the time.
    """

    version: str
    import_s: float
    answers: tuple[Answer, ...]
    cut_short: str | None = None


class Line(BaseModel):
    """A line that the process in SGLang's environment writes."""

    model_config = ConfigDict(extra="ignore")

    failed: str | None = None
    sglang: str | None = None
    import_s: float = 0.0
    refused: str | None = None
    unanswered: str | None = None
    values: dict[str, Any] = {}
    asked: dict[str, Any] = {}


def answers_of(lines: Sequence[str]) -> Answers:
    """Reads what the process wrote.

    Raises:
        NotAskedError: SGLang could not be imported.
        ValueError: These are not its lines.
    """
    read = [Line.model_validate_json(line) for line in lines]
    if not read or (read[0].sglang is None and read[0].failed is None):
        raise ValueError("no answer")
    if read[0].failed is not None:
        raise NotAskedError(f"SGLang cannot be imported: {read[0].failed}")
    base: dict[str, Any] = {}
    answers = []
    for line in read[1:]:
        for name, value in line.values.items():
            base.setdefault(name, value)
        values = ChainMap(line.values, base) if line.values or line.asked else {}
        answers.append(Answer(line.refused, line.unanswered, values, line.asked))
    return Answers(str(read[0].sglang), read[0].import_s, tuple(answers))


IMPORT_S = 180.0
"""Longest that SGLang may take to be imported and to resolve its first arguments. About 7 s on a
quiet machine with its files in memory; minutes from a network disk."""

_BEYOND_S = 30.0
"""The process ends itself; only one that cannot be reached (behind `ssh`) is waited for so long."""

_ALARM = (-signal.SIGALRM, 128 + signal.SIGALRM)
"""Exit codes of a process that was still at work when its time was over, and of a shell's."""

_OFFLINE = {"HF_HUB_OFFLINE": "1"}
"""To ask is not to download: a model that is not here is told, not fetched."""


def ask(
    environment: ServerEnvironment,
    launches: Iterable[Mapping[str, Any]],
    *,
    seconds: float,
    gpu: PretendedGpu | None = None,
    variables: Mapping[str, str | None] | None = None,
    import_s: float = IMPORT_S,
) -> Answers:
    """Asks about one launch after the other; starts none.

    Args:
        environment: Where SGLang is.
        launches: `launch_arguments` of each.
        seconds: After these no further launch is begun; they begin when the first is answered.
        gpu: A GPU to pretend; `None` shows SGLang the machine as it is.
        variables: Variables of every launch, which SGLang may read when it is imported.
        import_s: How long it may take before that.

    Raises:
        NotAskedError: SGLang could not be asked.
    """
    pretended = gpu.to_dict() if gpu is not None else None
    asked = list(launches)
    request = {"gpu": pretended, "import_s": import_s, "seconds": seconds, "launches": asked}
    try:
        done = environment.run(
            ["-c", script()],
            variables={**_OFFLINE, **(variables or {})},
            stdin=json.dumps(request),
            timeout_s=import_s + seconds + _BEYOND_S,
        )
    except EnvironmentUnusableError as error:
        raise NotAskedError(str(error)) from error
    late = done.returncode in _ALARM
    salient = (done.stderr.strip().splitlines() or ["no output"])[-1]
    ended = f"the process that asked it ended with exit code {done.returncode}: {salient}"
    nothing = NotAskedError(f"no answer within {import_s:g} s" if late else ended)
    try:
        found = answers_of(done.stdout.strip().split("\n"))
    except ValueError as error:
        raise nothing from error
    if len(found.answers) == len(asked) or done.returncode == 0:
        return found
    if not found.answers:
        raise nothing
    return replace(found, cut_short="the next one took too long" if late else ended)


def script() -> str:
    """What runs in SGLang's environment."""
    return (files(__package__) / "inside.py").read_text("utf-8")


def launch_arguments(study: Study, configuration: Configuration) -> dict[str, Any]:
    """A configuration's arguments and variables as a trial would be launched."""
    command = sglang_command(
        study, configuration, python="python", host="127.0.0.1", port=30000, for_export=False
    )
    return {"argv": command.argv[3:], "env": dict(command.env) | dict.fromkeys(command.unset)}
