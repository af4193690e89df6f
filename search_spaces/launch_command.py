"""A launch command as people run it today, read into its parts. Pure: text in, values out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.study_values import FixedValue


@dataclass(frozen=True, slots=True)
class Container:
    """The container that a command runs in.

    Attributes:
        engine: `"docker run"`, `"docker exec"`, `"compose"`, `"kubernetes"`, `"dockerfile"`, ...
        image: The image; for `docker exec`, the container's name.
        options: Words between the engine and the image (`--gpus all --ipc=host`); empty for files.
    """

    engine: str
    image: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchText:
    """A launch command, read.

    Attributes:
        text: The command as one line for a shell, secrets replaced by `$NAMES`: what
            `production.command` of a study holds.
        python: The interpreter (`"python3"`); `None` for `sglang serve`.
        prefix: Words before it that start it elsewhere or pinned (`srun ...`, `numactl ...`).
        env: Variables that the command sets, secrets replaced; `None` is one that it removes.
        flags: SGLang's flags by canonical name, without dashes: every flag of the command, those
            of model and speculation included. `True` is a switch; a tuple is several words.
        secrets: Names of the flags and variables whose values were replaced.
        variables: `$NAMES` that are used and not set in the text (unresolved, kept as they are).
        container: Where it runs, if the text says so.
        notes: What was guessed or left out, as sentences for the user.
    """

    text: str
    flags: Mapping[str, FixedValue]
    env: Mapping[str, str | None] = field(default_factory=dict)
    python: str | None = None
    prefix: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    container: Container | None = None
    notes: tuple[str, ...] = ()


class UnreadableCommandError(ValueError):
    """The text holds no SGLang launch command; the message says what was looked for."""
