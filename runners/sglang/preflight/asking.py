"""Asks the SGLang of a server environment, in one process, what it makes of launches."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from runners.base import EnvironmentUnusableError
from runners.sglang.command import sglang_command
from runners.sglang.preflight.answers import Answers, NotAskedError, answers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runners.process.environment import ServerEnvironment
    from runners.sglang.preflight.gpus import PretendedGpu
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study

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
