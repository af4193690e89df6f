"""Where, and with which interpreter, a server and everything that must see what it sees run."""

from __future__ import annotations

import abc
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.base import EnvironmentUnusableError, LaunchCommand, with_variables
from runners.load.prompts.server_python import ServerPython
from search_spaces.launch_commands.prefixes import prefix_here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from search_spaces.study_file.study import Study

PYTHON_VARIABLE = "TUNER_SGLANG_PYTHON"
"""Names the interpreter of the environment that has SGLang, where the study does not."""

LOOPBACK = "127.0.0.1"

_ANY_OR_HERE = frozenset({"0.0.0.0", "::", "[::]", "localhost"})

# Runs in the server's interpreter, so standard library only. Importing sglang takes seconds and
# may fail for reasons that only its own start explains: the distribution's metadata is enough.
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
    """What was found in a server environment.

    Attributes:
        sglang_version: The installed version; `None` where SGLang is not installed.
        gpus: GPU devices that can be seen.
        missing_paths: Those of the asked paths that do not exist there.
    """

    sglang_version: str | None
    gpus: int
    missing_paths: tuple[str, ...]


class ServerEnvironment(abc.ABC):
    """Where the server runs, and so the flag check, chat template, probe, plugin and doctor.

    Attributes:
        python: The interpreter, as it is called there.
        sees_processes: Whether the server's processes are children of ours that `/proc` shows.
            Then a port is proven to be ours by its process; otherwise by the name that the
            launch gave its model (`ownership_flags`), which only our server answers with.
    """

    python: str
    sees_processes: bool

    @abc.abstractmethod
    def wrap(self, command: LaunchCommand) -> LaunchCommand:
        """`command` as it must be started from here."""

    def ownership_flags(self, mark: str) -> tuple[str, ...]:
        """Flags by which a server that is not seen as a process is known to be this launch's."""
        return () if self.sees_processes else ("--served-model-name", served_name(mark))

    def trial_host(self, study: Study) -> str:
        """The address at which a trial's server listens, and is reached from here: loopback.

        A trial's server is nobody else's, so it listens where nobody else can reach it.
        """
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
        """Runs the environment's interpreter with `arguments` and waits for it.

        Args:
            arguments: After the interpreter.
            variables: To set, or (`None`) to remove.
            stdin: What it reads.
            timeout_s: Longest that it may take.

        Raises:
            EnvironmentUnusableError: It could not be started, or did not end in time.
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

    def facts(self, paths: Sequence[str] = ()) -> EnvironmentFacts:
        """Looks for SGLang, GPUs and `paths` where the server would run.

        Raises:
            EnvironmentUnusableError: The interpreter could not be run.
        """
        done = self.run(["-c", _FACTS, *paths])
        try:
            found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
            return EnvironmentFacts(found["sglang"], found["gpus"], tuple(found["missing"]))
        except (IndexError, ValueError, KeyError, TypeError) as error:
            salient = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise EnvironmentUnusableError(
                f"{self.python} ended with exit code {done.returncode}: {salient}"
            ) from error

    def missing(self) -> str | None:
        """Why SGLang cannot be started here, or `None`."""
        try:
            facts = self.facts()
        except EnvironmentUnusableError as error:
            return str(error)
        return None if facts.sglang_version else f"SGLang is not installed for {self.python}"


class LocalEnvironment(ServerEnvironment):
    """An interpreter of this machine."""

    sees_processes = True

    def __init__(self, python: str) -> None:
        self.python = python

    def wrap(self, command: LaunchCommand) -> LaunchCommand:
        """Nothing to add: the process's own environment carries the variables."""
        return command


class CommandPrefix(ServerEnvironment):
    """Behind a command (`docker exec NAME`, `srun ...`, `ssh HOST`).

    Variables are set by `env` behind the prefix, as most prefixes pass none on. Stopping signals
    the prefix command's own process group, and what carries the launch's mark where it can be seen
    from here (docker on this machine); the proof is that the port is free again.
    """

    sees_processes = False

    def __init__(self, prefix: Sequence[str], python: str) -> None:
        self.prefix = tuple(prefix)
        self.python = python

    def trial_host(self, study: Study) -> str:
        """The study's `host` where it names one address: on another node only that is reached.

        An address for all (`0.0.0.0`) is none to connect to; then both ends are loopback, as
        where the prefix stays on this machine.
        """
        host = str(study.server.flags.get("host") or LOOPBACK)
        here = bool(prefix_here(self.prefix))
        return LOOPBACK if here or host in _ANY_OR_HERE else host

    def wrap(self, command: LaunchCommand) -> LaunchCommand:
        """The prefix, `env` with the variables, then the command."""
        variables = [f"{name}={value}" for name, value in command.env]
        unset = [word for name in command.unset for word in ("-u", name)]
        middle = ["env", *unset, *variables] if variables or unset else []
        return LaunchCommand((*self.prefix, *middle, *command.argv), command.env, command.unset)


def served_name(mark: str) -> str:
    """The model name by which a launch behind a prefix is recognised."""
    return f"tuner-{mark}"


def server_environment(study: Study, *, default_python: str | None = None) -> ServerEnvironment:
    """The study's environment.

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
    """The environment's Python with the study's model, for helpers that need the two together."""
    flags = study.server.flags
    # With the server's variables: the model may be found only through them (HF_HOME).
    command = environment.wrap(with_variables((environment.python,), study.server.env))
    return ServerPython(
        command.argv,
        str(flags.get("tokenizer-path") or study.model.path),
        command.environment(),
        trust_remote_code=flags.get("trust-remote-code") is True,
    )
