"""Words around SGLang's command, and the command as one line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.launch_commands.shell_expansion import live, quoted, shown

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


CONTAINER_ENGINES = frozenset({"docker", "podman", "nerdctl"})

# Docker 27's options of `run` and `exec` that take no value; all others take one.
_SWITCHES = frozenset(
    {"--detach", "--disable-content-trust", "--help", "--init", "--interactive",
     "--no-healthcheck", "--oom-kill-disable", "--privileged", "--publish-all", "--quiet",
     "--read-only", "--rm", "--sig-proxy", "--tty", "--replace", "--rmi", "--tls-verify"}
)  # fmt: skip
_SHORT_SWITCHES = frozenset("ditPq")
_GLOBAL_SWITCHES = frozenset({"--debug", "-D", "--tls", "--tlsverify"})
_SET = re.compile(r"([A-Za-z_]\w*)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class InnerCommand:
    """A container and the command in it.

    Attributes:
        layer: The container.
        words: The command inside.
        env: Variables given to the container.
        notes: Settings that do not reach the container, or were not read.
    """

    layer: InContainer
    words: tuple[str, ...]
    env: Mapping[str, str | None]
    notes: tuple[str, ...] = ()


def container_layer(words: Sequence[str], outside: Mapping[str, str | None]) -> InnerCommand | None:
    """Parse `docker run ...` or `docker exec ...`; `None` for other commands.

    Args:
        words: Words from the engine's name on.
        outside: Variables of the caller, for `-e NAME`.
    """
    words = list(words)
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 1 if words[at] in _GLOBAL_SWITCHES or "=" in words[at] else 2
    if words[at : at + 1] == ["container"]:
        at += 1
    if at >= len(words) or words[at] not in {"run", "exec"}:
        return None
    start = tuple(words[: at + 1])
    engine = f"{words[0].rsplit('/', 1)[-1]} {words[at]}"
    options: list[str] = []
    env: dict[str, str | None] = {}
    entrypoint: list[str] = []
    notes: list[str] = []
    at += 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        name, value, length = _option(words[at:])
        at += length
        if name in {"-e", "--env"} and (found := _SET.fullmatch(value)):
            env[found[1]] = found[2] if found[2] is not None else _outside(found[1], outside)
        elif name == "--entrypoint":
            entrypoint = [value] if value else []
        else:
            if name == "--env-file":
                notes.append(f"Variables in the file of `--env-file {value}` are not read")
            options += words[at - length : at]
    if at >= len(words):
        return None
    lost = [name for name in outside if name not in env]
    if lost:
        notes.append(
            f"{', '.join(lost)}: set outside of the container, where SGLang does not see it; "
            "left out"
        )
    return InnerCommand(
        InContainer(engine, words[at], tuple(options), start),
        (*entrypoint, *words[at + 1 :]),
        env,
        tuple(notes),
    )


def _outside(name: str, outside: Mapping[str, str | None]) -> str:
    value = outside.get(name)
    return live(name) if value is None else value


def _option(words: Sequence[str]) -> tuple[str, str, int]:
    """Name, value and number of words of the option at the beginning."""
    word = words[0]
    following = words[1] if len(words) > 1 else ""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        if equals:
            return name, value, 1
        return (name, "", 1) if name in _SWITCHES else (name, following, min(2, len(words)))
    for index, letter in enumerate(word[1:], start=1):
        if letter not in _SHORT_SWITCHES:
            value = word[index + 1 :]
            if value:
                return f"-{letter}", value.removeprefix("="), 1
            return f"-{letter}", following, min(2, len(words))
    return word, "", 1


def kubectl_layer(words: Sequence[str]) -> InnerCommand | None:
    """Parse `kubectl exec POD -- COMMAND`; `None` for other commands."""
    words = list(words)
    if "exec" not in words or "--" not in words or words.index("--") < words.index("exec"):
        return None
    start, dashes = words.index("exec"), words.index("--")
    between = list(words[start + 1 : dashes])
    with_value = {"-n", "--namespace", "-c", "--container", "--context", "-f", "--filename"}
    pod = None
    options: list[str] = []
    at = 0
    while at < len(between):
        if between[at] in with_value:
            options += between[at : at + 2]
            at += 2
            continue
        if between[at].startswith("-") or pod is not None:
            options.append(between[at])
        else:
            pod = between[at]
        at += 1
    if pod is None:
        return None
    layer = InContainer(
        "kubectl exec",
        pod,
        tuple(options),
        tuple(words[: start + 1]),
        set_by_flag=False,
        separator=("--",),
    )
    return InnerCommand(layer, tuple(words[dashes + 1 :]), {})
