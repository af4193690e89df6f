"""Ask the SGLang of a server environment whether it accepts launches, in one process."""

from __future__ import annotations

import json
import signal
from collections import ChainMap
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from runners.base import EnvironmentUnusableError
from runners.sglang.command import sglang_command
from search_spaces.gpus import gpus_of_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runners.process.environment import ServerEnvironment
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study

IMPORT_S = 180.0
"""Longest time for SGLang's import and its first launch. About 7 s on a quiet machine with cached
files; minutes from a network disk."""

_BEYOND_S = 30.0
"""The process ends itself. This is the wait for a process that cannot be reached (behind `ssh`)."""

_ALARM = (-signal.SIGALRM, 128 + signal.SIGALRM)
"""Exit codes of a process, and of a shell, that SIGALRM ended at the time limit."""

_DERIVED = frozenset({"model_path", "tokenizer_path", "speculative_draft_model_path"})
"""Fields that SGLang resolves to another spelling of the requested value."""


class NotAskedError(Exception):
    """SGLang could not be asked; the message says why."""


@dataclass(frozen=True, slots=True)
class PretendedGpu:
    """Facts about a GPU that SGLang's argument handling reads.

    Attributes:
        name: NVIDIA's name.
        capability: Compute capability.
        memory_mib: Memory as `nvidia-smi` shows it.
    """

    name: str
    capability: tuple[int, int]
    memory_mib: int


GPUS = (
    PretendedGpu("NVIDIA H100", (9, 0), 81_559),
    PretendedGpu("NVIDIA H200", (9, 0), 143_771),
    PretendedGpu("NVIDIA B200", (10, 0), 183_359),
    PretendedGpu("NVIDIA RTX PRO 6000 Blackwell", (12, 0), 97_887),
    PretendedGpu("NVIDIA L40S", (8, 9), 46_068),
    PretendedGpu("NVIDIA A100", (8, 0), 81_920),
)
"""Known GPUs; the first is the default."""


def gpu_named(name: str) -> PretendedGpu | None:
    """Known GPU with this name or part of a name (`"h200"`, `"NVIDIA H100 80GB HBM3"`)."""
    wanted = _letters(name)
    if not wanted:
        return None
    known = ((gpu, _letters(gpu.name)) for gpu in GPUS)
    return next((gpu for gpu, its in known if its in wanted or wanted in its), None)


def _letters(name: str) -> str:
    return "".join(name.lower().replace("nvidia", "").replace("-", " ").split())


def gpu_to_pretend(
    study: Study, *, gpus_here: int, named: Iterable[str] = ()
) -> PretendedGpu | None:
    """GPU to simulate; `None` if SGLang sees the machine as it is.

    Args:
        study: The study; a server without CUDA needs no GPU.
        gpus_here: GPUs of the server environment.
        named: Names of likely GPUs, the likeliest first.
    """
    if gpus_here or not gpus_of_server(study.server.flags):
        return None
    found = (gpu_named(name) for name in named)
    return next((gpu for gpu in found if gpu is not None), GPUS[0])


@dataclass(frozen=True, slots=True)
class Answer:
    """SGLang's answer to one launch.

    Attributes:
        refused: SGLang's message if the launch would fail at its start, else `None`.
        unanswered: Why SGLang gave no answer, for example a missing model configuration.
        values: Resolved values by field (`"attention_backend"`).
        asked: Requested values by field, as SGLang's parser read them.
    """

    refused: str | None = None
    unanswered: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rewritten(self) -> dict[str, tuple[Any, Any]]:
        """Requested and resolved value of each field that SGLang changes."""
        return {
            name: (value, self.values[name])
            for name, value in self.asked.items()
            if name not in _DERIVED and name in self.values and self.values[name] != value
        }


@dataclass(frozen=True, slots=True)
class Answers:
    """SGLang's answers to a list of launches.

    Attributes:
        version: Version of SGLang.
        import_s: Duration of SGLang's import in seconds.
        answers: Answers in the order of the launches; fewer than launches at the time limit.
        cut_short: Why answers are missing, if not for the time limit.
    """

    version: str
    import_s: float
    answers: tuple[Answer, ...]
    cut_short: str | None = None


def ask(
    environment: ServerEnvironment,
    launches: Sequence[Mapping[str, Any]],
    *,
    seconds: float,
    gpu: PretendedGpu | None = None,
    variables: Mapping[str, str | None] | None = None,
    import_s: float = IMPORT_S,
) -> Answers:
    """Ask about one launch after the other, without starting any.

    Args:
        environment: Environment with SGLang.
        launches: `launch_arguments` of each launch.
        seconds: Time limit for the launches after the first one.
        gpu: GPU to simulate; `None` shows SGLang the machine as it is.
        variables: Variables of every launch, which SGLang may read during its import.
        import_s: Time limit for SGLang's import and the first launch.

    Raises:
        NotAskedError: SGLang could not be asked.
    """
    request = {
        "gpu": asdict(gpu) if gpu is not None else None,
        "import_s": import_s,
        "seconds": seconds,
        "launches": launches,
    }
    try:
        done = environment.run(
            ["-c", script()],
            # A check downloads nothing, so a model that is missing here stays unanswered.
            variables={"HF_HUB_OFFLINE": "1", **(variables or {})},
            stdin=json.dumps(request),
            timeout_s=import_s + seconds + _BEYOND_S,
        )
    except EnvironmentUnusableError as error:
        raise NotAskedError(str(error)) from error
    late = done.returncode in _ALARM
    salient = (done.stderr.strip().splitlines() or ["no output"])[-1]
    ended = f"the check ended with exit code {done.returncode}: {salient}"
    nothing = NotAskedError(f"no answer within {import_s:g} s" if late else ended)
    try:
        found = _answers_of(done.stdout.strip().split("\n"))
    except (ValueError, TypeError, AttributeError) as error:  # lines that are not ours
        raise nothing from error
    if len(found.answers) == len(launches) or done.returncode == 0:
        return found
    if not found.answers:
        raise nothing
    return replace(found, cut_short="the next launch took too long" if late else ended)


def _answers_of(lines: Sequence[str]) -> Answers:
    """Read the output of `inside.py`."""
    first, *others = map(json.loads, lines)
    if failed := first.get("failed"):
        raise NotAskedError(f"SGLang cannot be imported: {failed}")
    if "sglang" not in first:
        raise ValueError("no answer")
    base: dict[str, Any] = {}
    answers = []
    for line in others:
        values, asked = line.get("values", {}), line.get("asked", {})
        for name, value in values.items():
            base.setdefault(name, value)
        # Each line has only the values that differ from their first occurrence.
        resolved = ChainMap(values, base) if values or asked else {}
        answers.append(Answer(line.get("refused"), line.get("unanswered"), resolved, asked))
    return Answers(str(first["sglang"]), first.get("import_s", 0.0), tuple(answers))


def script() -> str:
    """Script that runs in SGLang's environment."""
    return (files(__package__) / "inside.py").read_text("utf-8")


def launch_arguments(study: Study, configuration: Configuration) -> dict[str, Any]:
    """Arguments and variables of a trial's launch."""
    command = sglang_command(study, configuration, python="python", host="127.0.0.1", port=30000)
    return {"argv": command.argv[3:], "env": dict(command.env) | dict.fromkeys(command.unset)}
