"""Find launch commands in compose files and Kubernetes manifests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from search_spaces.launch_commands.layers import InContainer
from search_spaces.launch_commands.shell_expansion import expand_one, live
from search_spaces.launch_commands.shell_words import Command, UnfinishedShellError, commands

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DOLLAR = "\ue001"  # an escaped dollar sign
_COMPOSE = re.compile(r"\$(?:(\$)|\{([^{}]*)\}|([A-Za-z_]\w*))")
_KUBERNETES = re.compile(r"\$(?:\$\(|\(([A-Za-z_][\w.-]*)\))")
_DEEPEST = 50


class UnreadableFileError(ValueError):
    """The file is not of its apparent kind; the message has the reason."""


@dataclass(frozen=True, slots=True)
class FileCommand:
    """A command that a file starts.

    Attributes:
        command: A shell text, or words.
        env: Variables of the command.
        container: Its container.
        notes: Notes on guesses and omissions.
        name: Name of the service, container or program; empty without a name.
    """

    command: str | tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)
    container: InContainer | None = None
    notes: tuple[str, ...] = ()
    name: str = ""


def compose_commands(text: str, given: Mapping[str, str]) -> Iterator[FileCommand]:
    """Commands of a compose file's services, with the values of `given` for variables."""
    text = _COMPOSE.sub(lambda found: _given_to_compose(found, given), text)
    for document in _documents(text, "compose file"):
        services = document.get("services") if isinstance(document, dict) else None
        for name, written in _merged(services).items():
            if not (service := _merged(written)):
                continue
            notes = []
            if service.get("extends"):
                notes.append(f"What service {name} takes by `extends` is not read")
            if service.get("env_file"):
                notes.append(f"Variables of the `env_file` of service {name} are not read")
            yield FileCommand(
                (*_compose_words(service.get("entrypoint")), *_compose_words(service["command"]))
                if service.get("command") is not None
                else _compose_words(service.get("entrypoint")),
                _compose_env(service.get("environment")),
                InContainer("compose", _interpolated(str(service.get("image", "")))),
                tuple(notes),
                name,
            )


def _given_to_compose(match: re.Match[str], given: Mapping[str, str]) -> str:
    name = re.match(r"[A-Za-z_]\w*", match[2] or match[3] or "")
    return given.get(name.group(), match.group()) if name is not None else match.group()


def _merged(node: object, known: dict[int, dict[str, Any]] | None = None) -> dict[str, Any]:
    """A mapping with the mappings that `<<: *name` merges into it.

    Each mapping is visited once, because names may refer to themselves or to each other in
    exponentially many ways.
    """
    known = {} if known is None else known
    if not isinstance(node, dict):
        return {}
    if (out := known.get(id(node))) is not None:
        return out
    out = known[id(node)] = {}
    # Earlier mappings override later ones, and the mapping's own keys override all.
    for base in reversed(_listed(node.get("<<"))):
        out |= _merged(base, known)
    out |= {str(key): value for key, value in node.items() if key != "<<"}
    return out


def _compose_words(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(_interpolated(_scalar(item)).replace(_DOLLAR, "$") for item in value)
    if not isinstance(value, str):
        return ()
    # Compose splits the text like a shell, and expands only `${NAME}`.
    text = _interpolated(value)
    words = [
        word
        for command in commands_of(re.sub(r"[\n;|&()<>]", _literal, text))
        for word in command.words
    ]
    return tuple(expand_one(word, {}).replace(_DOLLAR, "$") for word in words)


def _literal(match: re.Match[str]) -> str:
    return " " if match.group() == "\n" else match.group()


def _compose_env(value: object) -> dict[str, str | None]:
    out: dict[str, str | None] = {}
    items: list[tuple[str, object]] = []
    if isinstance(value, dict):
        items = list(_merged(value).items())
    elif isinstance(value, list):
        for item in value:
            named, equals, text = str(item).partition("=")
            items.append((named, text if equals else None))
    for name, content in items:
        plain = None if content is None else _interpolated(_scalar(content))
        out[name] = live(name) if plain is None else plain.replace(_DOLLAR, "$")
    return out


def _interpolated(text: str) -> str:
    """Expand compose's `${NAME:-default}`; variables that the file does not set stay live."""

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return _DOLLAR
        if match[3]:
            return live(match[3])
        found = re.fullmatch(r"([A-Za-z_]\w*)(?:(:?[-?+])(.*))?", match[2], re.DOTALL)
        if found is None:
            return match.group()
        if found[2] and found[2].endswith("-"):
            return found[3]
        return "" if found[2] and found[2].endswith("+") else live(found[1])

    return _COMPOSE.sub(value, text)


def kubernetes_commands(text: str, given: Mapping[str, str]) -> Iterator[FileCommand]:
    """Commands of all containers of a manifest, in objects of any kind."""
    for document in _documents(text, "Kubernetes manifest"):
        for container in _containers(document):
            env, notes = _kubernetes_env(container.get("env"))
            if container.get("envFrom"):
                notes.append("Variables of `envFrom` are not read")
            env |= {name: value for name, value in given.items() if name in env}
            known = {name: value for name, value in env.items() if value is not None} | dict(given)
            words = tuple(
                _kubernetes_text(_scalar(word), known)
                for key in ("command", "args")
                for word in _listed(container.get(key))
            )
            yield FileCommand(
                words,
                env,
                InContainer("kubernetes", str(container.get("image", ""))),
                tuple(notes),
                str(container.get("name", "")),
            )


def _containers(node: object, depth: int = 0) -> Iterator[dict[str, Any]]:
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        found = node.get("containers")
        if isinstance(found, list):
            yield from (item for item in found if isinstance(item, dict))
        for key, value in node.items():
            if key not in {"containers", "initContainers"}:
                yield from _containers(value, depth + 1)
    elif isinstance(node, list):
        for item in node:
            yield from _containers(item, depth + 1)


def _kubernetes_env(value: object) -> tuple[dict[str, str | None], list[str]]:
    env: dict[str, str | None] = {}
    notes: list[str] = []
    for item in value if isinstance(value, list) else []:
        if not isinstance(item, dict) or "name" not in item:
            continue
        name = str(item["name"])
        source = item.get("valueFrom")
        if isinstance(source, dict) and source:
            kind = str(next(iter(source)))
            if kind == "secretKeyRef":
                env[name] = live(name)
            notes.append(f"`{name}` comes from a {kind}, which is not in the file")
            continue
        given = {n: v for n, v in env.items() if v is not None}
        env[name] = _kubernetes_text(_scalar(item.get("value", "")), given)
    return env, notes


def _kubernetes_text(text: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$("
        return env.get(match[1], live(match[1]))

    return _KUBERNETES.sub(value, text)


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _scalar(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _documents(text: str, what: str) -> list[Any]:
    try:
        return list(yaml.load_all(text, Loader=yaml.BaseLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        hint = "; render the template first, with `helm template`" if "{{" in text else ""
        raise UnreadableFileError(f"This {what} is not YAML{where}{hint}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"This {what} is not YAML: {error}") from None


def commands_of(text: str) -> list[Command]:
    """Simple commands of a text in a file."""
    try:
        return commands(text)
    except UnfinishedShellError as error:
        raise UnreadableFileError(str(error)) from None
