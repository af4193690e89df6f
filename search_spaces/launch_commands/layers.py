"""What stands around SGLang's words in a launch command, and the command as one line again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.launch_commands.shell_expansion import quoted, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Words:
    """Words before the command; `joins` where they hand the rest on as one text, as ssh does."""

    words: tuple[str, ...]
    joins: bool = False


@dataclass(frozen=True, slots=True)
class InContainer:
    """A container.

    Attributes:
        engine: As in `Container`.
        image: Image, container or pod.
        options: Words between engine and image, variables left out.
        start: The first words (`docker run`); empty where the text is a file.
        set_by_flag: Whether variables are given by `-e` (else by `env` inside).
        separator: What stands after the image.
    """

    engine: str
    image: str
    options: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    set_by_flag: bool = True
    separator: tuple[str, ...] = ()


Layer = Words | InContainer


def one_line(layers: Sequence[Layer], env: Mapping[str, str | None], words: Sequence[str]) -> str:
    """The command for a POSIX shell. Layers of files are left out."""
    inner = list(words)
    pending = dict(env)
    for layer in reversed(layers):
        if isinstance(layer, InContainer):
            if layer.start:
                inner = _contained(layer, pending, inner)
                pending = {}
        elif layer.joins:
            # Its text is read by a shell of its own: what is live stays so in there.
            inner = [*layer.words, shown(_shell(pending, inner))]
            pending = {}
        else:
            inner = [*layer.words, *inner]
    return _shell(pending, inner)


def _contained(layer: InContainer, env: Mapping[str, str | None], inner: list[str]) -> list[str]:
    by_flag: list[str] = []
    if layer.set_by_flag:
        for name, value in env.items():
            if value is not None:
                by_flag += ["-e", f"{name}={value}"]
        env = {name: None for name, value in env.items() if value is None}
    by_env = _env_words(env)
    return [
        *layer.start,
        *layer.options,
        *by_flag,
        layer.image,
        *layer.separator,
        *(["env", *by_env] if by_env else []),
        *inner,
    ]


def _env_words(env: Mapping[str, str | None]) -> list[str]:
    words: list[str] = []
    for name, value in env.items():
        if value is None:
            words += ["-u", name]
    return [*words, *(f"{name}={value}" for name, value in env.items() if value is not None)]


def _shell(env: Mapping[str, str | None], words: Sequence[str]) -> str:
    removed = [name for name, value in env.items() if value is None]
    start = ["env", *(f"-u {quoted(name)}" for name in removed)] if removed else []
    values = [f"{name}={quoted(value)}" for name, value in env.items() if value is not None]
    return " ".join([*start, *values, *map(quoted, words)])
