"""Server environments: the interpreter, and the command prefix, that run servers and helpers."""

from __future__ import annotations

import abc
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from runners.base import EnvironmentUnusableError, LaunchCommand, with_variables
from runners.load.prompts.server_python import ServerPython
from search_spaces.launch_commands.prefixes import prefix_here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from search_spaces.study_file.study import Study

PYTHON_VARIABLE = "TUNER_SGLANG_PYTHON"
"""Interpreter that has SGLang, for studies without `server.python`."""

LOOPBACK = "127.0.0.1"

_ANY_OR_HERE = frozenset({"0.0.0.0", "::", "[::]", "localhost"})

# Runs in the server's interpreter, so standard library only. The metadata of the distribution has
# the version; importing sglang takes seconds and may fail.
_FACTS = """
import glob, importlib.metadata, json, os, sys
try:
    version = importlib.metadata.version("sglang")
except importlib.metadata.PackageNotFoundError:
    version = None
gpus = len(glob.glob("/dev/nvidia[0-9]*"))
if not gpus and os.path.exists("/dev/kfd"):
    gpus = len(glob.glob("/dev/dri/renderD*"))
print(json.dumps({
    "sglang": version,
    "gpus": gpus,
    "missing": [path for path in sys.argv[1:] if not os.path.exists(os.path.expanduser(path))],
}))
"""


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """Facts of a server environment.

    Attributes:
        sglang_version: The installed version; `None` without SGLang.
        gpus: Number of visible GPU devices.
        missing_paths: Requested paths that do not exist.
    """

    sglang_version: str | None
    gpus: int
    missing_paths: tuple[str, ...]


class ServerEnvironment(abc.ABC):
    """Runs servers, flag checks, chat templates, probes, the plugin and the doctor.

    Attributes:
        python: The interpreter, as the environment names it.
        sees_processes: Whether servers are children of this process, visible in `/proc`. Then the
            listening process proves who owns a port. Otherwise the served model name of the launch
            proves it (`ownership_flags`).
    """

    python: str
    sees_processes: bool

    @abc.abstractmethod
    def wrap(self, command: LaunchCommand) -> LaunchCommand:
        """Command that starts `command` in this environment."""

    def ownership_flags(self, mark: str) -> tuple[str, ...]:
        """Flags that identify the server of a launch if its process is not visible."""
        return () if self.sees_processes else ("--served-model-name", served_name(mark))

    def trial_host(self, study: Study) -> str:
        """Address of a trial's server: loopback, so that only this machine reaches the server."""
        del study
        return LOOPBACK

    def run(
        self,
        arguments: Sequence[str],
        *,
        variables: Mapping[str, str | None] | None = None,
        stdin: str | None = None,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run the environment's interpreter to its end.

        Args:
            arguments: Arguments of the interpreter.
            variables: Variables to set, or to remove if `None`.
            stdin: Text on standard input.
            timeout_s: Longest run time.

        Raises:
            EnvironmentUnusableError: The interpreter could not be started, or did not end in time.
        """
        command = self.wrap(with_variables((self.python, *arguments), variables or {}))
        try:
            return subprocess.run(
                command.argv,
                env=command.environment(),
                input=stdin,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except OSError as error:
            raise EnvironmentUnusableError(f"cannot run {command.argv[0]}: {error}") from error
        except subprocess.TimeoutExpired as error:
            words = (word for word in command.argv[:3] if "\n" not in word)  # no whole script
            raise EnvironmentUnusableError(
                f"{' '.join(words)} ... did not end within {timeout_s:.0f} s"
            ) from error

    def run_script(
        self,
        script: str,
        *arguments: str,
        variables: Mapping[str, str | None] | None = None,
        timeout_s: float = 60.0,
    ) -> dict[str, Any]:
        """Run a Python script, and read the JSON object on its last line of output.

        Raises:
            EnvironmentUnusableError: The script could not be run, or printed no JSON object.
        """
        done = self.run(["-c", script, *arguments], variables=variables, timeout_s=timeout_s)
        with suppress(IndexError, ValueError):
            found = json.loads(done.stdout.strip().splitlines()[-1])
            if isinstance(found, dict):
                return found
        salient = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise EnvironmentUnusableError(
            f"{self.python} ended with exit code {done.returncode}: {salient}"
        )

    def facts(self, paths: Sequence[str] = ()) -> EnvironmentFacts:
        """Look for SGLang, GPUs and `paths` in the environment.

        Raises:
            EnvironmentUnusableError: The interpreter could not be run.
        """
        found = self.run_script(_FACTS, *paths)
        return EnvironmentFacts(found["sglang"], found["gpus"], tuple(found["missing"]))


class LocalEnvironment(ServerEnvironment):
    """An interpreter of this machine."""

    sees_processes = True

    def __init__(self, python: str) -> None:
        self.python = python

    def wrap(self, command: LaunchCommand) -> LaunchCommand:
        """Return the command unchanged, since the process gets the variables."""
        return command


class CommandPrefix(ServerEnvironment):
    """An interpreter behind a command (`docker exec NAME`, `srun ...`, `ssh HOST`).

    `env` sets the variables behind the prefix, because most prefixes do not pass variables on. A
    stop signals the prefix command's process group, and visible processes with the launch's mark
    (docker on this machine). The free port proves the stop.
    """

    sees_processes = False

    def __init__(self, prefix: Sequence[str], python: str) -> None:
        self.prefix = tuple(prefix)
        self.python = python

    def trial_host(self, study: Study) -> str:
        """The study's `host`, so that a server on another node is reached.

        Loopback if the prefix stays on this machine, or if `host` stands for all addresses
        (`0.0.0.0`), to which no client can connect.
        """
        host = str(study.server.flags.get("host") or LOOPBACK)
        here = bool(prefix_here(self.prefix))
        return LOOPBACK if here or host in _ANY_OR_HERE else host

    def wrap(self, command: LaunchCommand) -> LaunchCommand:
        """Command with the prefix, then `env` with the variables."""
        variables = [f"{name}={value}" for name, value in command.env]
        unset = [word for name in command.unset for word in ("-u", name)]
        middle = ["env", *unset, *variables] if variables or unset else []
        return LaunchCommand((*self.prefix, *middle, *command.argv), command.env, command.unset)


@runtime_checkable
class Preflight(Protocol):
    """Capability of a runner: SGLang can check its configurations without a launch."""

    @property
    def preflight_environment(self) -> ServerEnvironment:
        """Environment with the SGLang installation to ask."""
        ...


def served_name(mark: str) -> str:
    """Served model name that identifies a launch behind a prefix."""
    return f"tuner-{mark}"


def server_environment(study: Study, *, default_python: str | None = None) -> ServerEnvironment:
    """Server environment of a study.

    The interpreter is `server.python`, else `$TUNER_SGLANG_PYTHON`, else `default_python`
    (the tuner's own).
    """
    python = (
        study.server.python or os.environ.get(PYTHON_VARIABLE) or default_python or sys.executable
    )
    if study.server.prefix:
        return CommandPrefix(study.server.prefix, python)
    return LocalEnvironment(python)


def server_python(study: Study, environment: ServerEnvironment) -> ServerPython:
    """Python of the environment with the study's model, for helper scripts."""
    flags = study.server.flags
    # With the server's variables, since the model may need HF_HOME.
    command = environment.wrap(with_variables((environment.python,), study.server.env))
    return ServerPython(
        command.argv,
        str(flags.get("tokenizer-path") or study.model.path),
        command.environment(),
        trust_remote_code=flags.get("trust-remote-code") is True,
    )
