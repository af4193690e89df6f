"""What every export format writes: one value, made from a trial by `tuner.exports.assemble`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.sglang.command import flag_words
from tuner.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.base import LaunchCommand
    from tuner.analysis.contributions import Contributions

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
ALL_ADDRESSES = "0.0.0.0"
"""What a container must listen on to be reached from outside it."""
CONTAINER_PYTHON = "python3"
"""The interpreter of SGLang's images."""

GPU_CHOICES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Variables that pick GPUs of a machine; inside a container they are counted afresh."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, by the name of the environment variable that holds it."""

    name: str


Word = str | Secret
"""A word of a command or a variable's value."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A trial's server, as it is written down for use elsewhere.

    Attributes:
        study: The study's name.
        trial: The trial's number.
        simulated: Whether its figures are simulated.
        python: The interpreter.
        module: What it runs.
        flags: SGLang's flags without dashes, in order, with their values as a study has them;
            a secret is a `Secret`.
        env: Variables to set.
        unset: Variables to remove.
        command: The same as one command, secrets as `$NAME`; its prefix pins it on the machine.
        remarks: What the comments say: where it comes from, what it measured, how far to trust it.
        changes: What it changes against a baseline, as lines of comment.
        contributions: The same, as values.
        notes: What whoever uses it must know or do.
        facts: What is known of the study and trial, as JSON has it.
        image: The container's image.
        gpus: GPUs of one node; 0 where it runs without.
        start_s: Seconds that a start may take.
        start_reason: Where that comes from.
        local_paths: Models that are folders of this machine.
        cache: The model cache's folder inside a container.
    """

    study: str
    trial: int
    simulated: bool
    python: str
    module: str
    flags: tuple[tuple[str, Any], ...]
    env: tuple[tuple[str, Word], ...]
    unset: tuple[str, ...]
    command: LaunchCommand
    remarks: tuple[str, ...]
    changes: tuple[str, ...]
    contributions: Contributions
    notes: tuple[str, ...]
    facts: Mapping[str, Any]
    image: str
    gpus: int
    start_s: int
    start_reason: str
    local_paths: tuple[str, ...] = ()
    cache: str = "/root/.cache/huggingface"

    @property
    def name(self) -> str:
        """A name that services, containers and Kubernetes objects can have (RFC 1123)."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.study.lower()).strip("-")
        return f"sglang-{plain[:40].strip('-')}" if plain else "sglang"

    @property
    def host(self) -> str:
        """The address that the study's server listens on."""
        return str(dict(self.flags)["host"])

    @property
    def port(self) -> int:
        """The port that it listens on.

        Raises:
            CommandError: The study's is no number.
        """
        port = dict(self.flags)["port"]
        try:
            return int(port)
        except (TypeError, ValueError):
            raise CommandError(
                f"server.flags.port of the study is {port!r}, not a number; correct it"
            ) from None

    @property
    def scheme(self) -> str:
        """`http`, or `https` where the study has a certificate."""
        return "https" if "ssl-certfile" in dict(self.flags) else "http"

    @property
    def start(self) -> tuple[str, ...]:
        """The words before the flags, on a machine itself."""
        return (*self.command.prefix, self.python, "-m", self.module)

    @property
    def own_notes(self) -> tuple[str, ...]:
        """The notes where it runs on a machine itself, with the study's address."""
        if self.host not in LOOPBACK:
            return self.notes
        return (*self.notes, f"The server listens on {self.host} only, as in the study.")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the variables that hold secrets, without repeats."""
        words = (*(value for _, value in self.flags), *(value for _, value in self.env))
        return tuple(dict.fromkeys(word.name for word in words if isinstance(word, Secret)))

    def flag_lines(self, *, host: str | None = None) -> list[list[Word]]:
        """Each flag with its words.

        Args:
            host: The address to listen on in place of the study's.
        """
        lines: list[list[Word]] = []
        for name, value in self.flags:
            if isinstance(value, Secret):
                lines.append([f"--{name}", value])
            else:
                lines.append([*flag_words(name, host if name == "host" and host else value)])
        return lines

    @property
    def container_start(self) -> tuple[str, ...]:
        """The words before the flags inside a container.

        What an image sets itself can be removed only by the command.
        """
        unset = [word for name in self.unset for word in ("-u", name)]
        return (*(("env", *unset) if unset else ()), CONTAINER_PYTHON, "-m", self.module)

    @property
    def container_env(self) -> tuple[tuple[str, Word], ...]:
        """Variables to set inside a container: without those that count a machine's GPUs."""
        return tuple((name, value) for name, value in self.env if name not in GPU_CHOICES)
