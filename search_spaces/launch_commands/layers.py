"""Words around SGLang's command, and the command as one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.launch_commands.shell_expansion import quoted, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Words:
    """Words before the command. `joins` if they pass the rest on as one text, as ssh does."""

    words: tuple[str, ...]
    joins: bool = False


@dataclass(frozen=True, slots=True)
class InContainer:
    """A container.

    Attributes:
        engine: See `Container`.
        image: Image, container or pod.
        options: Words between engine and image, without variables.
        start: First words (`docker run`); empty if the text is a file.
        set_by_flag: Whether `-e` sets variables (else `env` inside the container).
        separator: Words after the image.
    """

    engine: str
    image: str
    options: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    set_by_flag: bool = True
    separator: tuple[str, ...] = ()


Layer = Words | InContainer


def one_line(layers: Sequence[Layer], env: Mapping[str, str | None], words: Sequence[str]) -> str:
    """The command for a POSIX shell, without layers of files."""
    inner = list(words)
    pending = dict(env)
    for layer in reversed(layers):
        if isinstance(layer, InContainer):
            if layer.start:
                inner = _contained(layer, pending, inner)
                pending = {}
        elif layer.joins:
            # Another shell reads this text, so live variables stay live.
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
