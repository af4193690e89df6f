"""The value that every export format writes."""

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
    """A secret, by the name of its environment variable."""

    name: str


Word = str | Secret
"""A word of a command or a variable's value."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A trial's launch command, ready to be written in any format.

    Attributes:
        study: Name of the study.
        trial: Number of the trial.
        simulated: Whether the results are simulated.
        python: The interpreter.
        module: The module to run.
        flags: SGLang's flags without dashes, in order, with the values of the study; secrets as
            `Secret`.
        env: Variables to set.
        unset: Variables to remove.
        command: The whole command, secrets as `$NAME`, with the prefix that pins it on the machine.
        remarks: Comments on origin, measurement and confidence.
        changes: Changes against a baseline, as lines of comment.
        contributions: Changes against a baseline, as values.
        notes: Notes for the user.
        facts: Facts about study and trial for JSON.
        image: Container image.
        gpus: GPUs per node; 0 without GPUs.
        start_s: Time limit of a start in seconds.
        start_reason: Origin of that limit.
        local_paths: Models that are folders on this machine.
        cache: Folder of the model cache in a container.
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
        """Name that is valid for services, containers and Kubernetes objects (RFC 1123)."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.study.lower()).strip("-")
        return f"sglang-{plain[:40].strip('-')}" if plain else "sglang"

    @property
    def host(self) -> str:
        """Address that the study's server listens on."""
        return str(dict(self.flags)["host"])

    @property
    def port(self) -> int:
        """Port of the server.

        Raises:
            CommandError: The port of the study is not a number.
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
        """`http`, or `https` if the study sets a certificate."""
        return "https" if "ssl-certfile" in dict(self.flags) else "http"

    @property
    def start(self) -> tuple[str, ...]:
        """Words before the flags, outside a container."""
        return (*self.command.prefix, self.python, "-m", self.module)

    @property
    def own_notes(self) -> tuple[str, ...]:
        """Notes for use outside a container, with the address of the study."""
        if self.host not in LOOPBACK:
            return self.notes
        return (*self.notes, f"The server listens on {self.host} only, as in the study.")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the variables that hold secrets, without repeats."""
        words = (*(value for _, value in self.flags), *(value for _, value in self.env))
        return tuple(dict.fromkeys(word.name for word in words if isinstance(word, Secret)))

    def flag_lines(self, *, host: str | None = None) -> list[list[Word]]:
        """Words of each flag.

        Args:
            host: Address to listen on; replaces the study's.
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
        """Words before the flags in a container.

        Only the command can remove variables that the image sets.
        """
        unset = [word for name in self.unset for word in ("-u", name)]
        return (*(("env", *unset) if unset else ()), CONTAINER_PYTHON, "-m", self.module)

    @property
    def container_env(self) -> tuple[tuple[str, Word], ...]:
        """Variables to set in a container, without those that select GPUs of a machine."""
        return tuple((name, value) for name, value in self.env if name not in GPU_CHOICES)
