"""Find launch commands in files: Dockerfiles, compose, Kubernetes, systemd."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import yaml

from search_spaces.launch_commands.layers import InContainer
from search_spaces.launch_commands.shell_expansion import Variables, expand, expand_one, live
from search_spaces.launch_commands.shell_words import (
    Command,
    UnfinishedShellError,
    assignment,
    commands,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


Kind = Literal["shell", "dockerfile", "compose", "kubernetes", "systemd", "supervisor"]

_DOLLAR = "\ue001"  # an escaped dollar sign


def kind_of(text: str) -> Kind:
    """Guess the kind of a text."""
    if re.search(r"^services:[ \t]*(#.*)?$", text, re.MULTILINE):
        return "compose"
    if re.search(r"^[ \t]*-?[ \t]*(apiVersion|containers):", text, re.MULTILINE) and re.search(
        r"^[ \t]*(-[ \t]*)?(kind|containers):", text, re.MULTILINE
    ):
        return "kubernetes"
    if re.search(r"^[ \t]*FROM[ \t]+\S", text, re.MULTILINE | re.IGNORECASE) and re.search(
        r"^[ \t]*(CMD|ENTRYPOINT)[ \t[]", text, re.MULTILINE | re.IGNORECASE
    ):
        return "dockerfile"
    if re.search(r"^ExecStart=", text, re.MULTILINE):
        return "systemd"
    if re.search(r"^\[(program|fcgi-program):", text, re.MULTILINE):
        return "supervisor"
    return "shell"


def file_commands(text: str, kind: Kind, given: Mapping[str, str]) -> Iterator[FileCommand]:
    """Return the commands that a file starts, in order.

    Args:
        text: The file.
        kind: Kind of the file.
        given: Values of variables; they override the file's values.

    Raises:
        UnreadableFileError: The file is not of this kind.
    """
    match kind:
        case "shell":
            yield FileCommand(text)
        case "dockerfile":
            yield from _dockerfile(text, given)
        case "compose":
            yield from compose_commands(text, given)
        case "kubernetes":
            yield from kubernetes_commands(text, given)
        case "systemd":
            yield from _systemd(text, given)
        case "supervisor":
            yield from _supervisor(text)


# Dockerfile


def _dockerfile(text: str, given: Mapping[str, str]) -> Iterator[FileCommand]:
    env: dict[str, str | None] = {}
    arguments: Variables = {}
    image = ""
    entrypoint: str | tuple[str, ...] = ()
    command: str | tuple[str, ...] = ()
    for instruction, rest in _instructions(text):
        known = {**arguments, **{k: v for k, v in env.items() if v is not None}, **given}
        if instruction == "FROM":
            words = [w for w in rest.split() if not w.startswith("--")]
            image, env, entrypoint, command = _text(words[0], known), {}, (), ()
        elif instruction == "ARG":
            arguments |= _assignments(rest, known)
        elif instruction == "ENV":
            env |= _env_instruction(rest, known)
            env |= {name: value for name, value in given.items() if name in env}
        elif instruction == "ENTRYPOINT":
            entrypoint, command = _exec_or_shell(rest), ()
        elif instruction == "CMD":
            command = _exec_or_shell(rest)
    container = InContainer("dockerfile", image)
    whole: str | tuple[str, ...]
    if isinstance(entrypoint, tuple) and isinstance(command, tuple):
        whole = (*entrypoint, *command)
    elif isinstance(entrypoint, str):
        whole = entrypoint  # Docker ignores CMD for a shell-form ENTRYPOINT
    else:
        whole = command if not entrypoint else (*entrypoint, "sh", "-c", str(command))
    yield FileCommand(whole, env, container)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    pending = ""
    for line in text.split("\n"):
        if line.lstrip().startswith("#"):
            continue
        if (stripped := line.rstrip()).endswith("\\"):
            pending += stripped[:-1] + " "
            continue
        whole, pending = (pending + line).strip(), ""
        instruction, _, rest = whole.partition(" ")
        if instruction:
            yield instruction.upper(), rest.strip()


def _exec_or_shell(rest: str) -> str | tuple[str, ...]:
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except ValueError:
            return rest
        if isinstance(words, list):
            return tuple(str(word) for word in words)
    return rest


def _env_instruction(rest: str, known: Variables) -> dict[str, str]:
    if found := _assignments(rest, known):
        return found
    name, _, value = rest.partition(" ")
    return {name: _text(value.strip(), known)} if re.fullmatch(r"[A-Za-z_]\w*", name) else {}


def _assignments(rest: str, known: Variables) -> dict[str, str]:
    out = {}
    for command in commands_of(rest):
        for word in command.words:
            if (found := assignment(word)) is not None:
                out[found[0]] = expand_one(found[2], known)
    return out


def _text(text: str, known: Variables) -> str:
    words = [word for command in commands_of(text) for word in command.words]
    return " ".join(expand_one(word, known) for word in words)


# systemd


def _systemd(text: str, given: Mapping[str, str]) -> Iterator[FileCommand]:
    env: dict[str, str | None] = {}
    notes: list[str] = []
    joined = re.sub(r"\\[ \t]*\n", " ", text)
    lines = [line.partition("=") for line in joined.split("\n") if "=" in line]
    for key, _, value in lines:
        if key.strip() == "Environment":
            env |= _quoted_assignments(value.replace("%%", "%"))
        elif key.strip() == "EnvironmentFile":
            notes.append(f"Variables in the file {value.strip()} are not read")
    for key, _, value in lines:
        if key.strip() == "ExecStart" and value.strip():
            env |= {name: value for name, value in given.items() if name in env}
            known: Variables = {**{k: v for k, v in env.items() if v is not None}, **given}
            line = value.strip().lstrip("@-:+!").replace("%%", "%").replace("$$", _DOLLAR)
            words = [
                field.replace(_DOLLAR, "$")
                for command in commands_of(line)
                for word in command.words
                for field in expand(word, known)
            ]
            yield FileCommand(tuple(words), env, None, tuple(notes))


def _quoted_assignments(text: str, separators: str = "") -> dict[str, str]:
    """Parse `A=1 "B=b c"`: words that no shell reads, with quotes around all or parts of them."""
    reader = shlex.shlex(text, posix=True, punctuation_chars=False)
    reader.whitespace_split, reader.commenters = True, ""
    reader.whitespace += separators
    try:
        words = [word.partition("=") for word in reader]
    except ValueError as error:
        raise UnreadableFileError(f"Cannot read the variables `{text.strip()}`: {error}") from None
    return {name: value for name, equals, value in words if equals}


# supervisord


def _supervisor(text: str) -> Iterator[FileCommand]:
    # Indented lines continue the previous one.
    joined = re.sub(r"\n[ \t]+(?=\S)", " ", text)
    for section in re.split(r"^(?=\[)", joined, flags=re.MULTILINE):
        named = re.match(r"\[[\w-]*program:([^\]\s]+)", section)
        keys = dict(re.findall(r"^(\w+)[ \t]*=[ \t]*(.*?)(?:[ \t];.*)?$", section, re.MULTILINE))
        if "command" in keys:
            env: dict[str, str | None] = {}
            env |= _quoted_assignments(keys.get("environment", "").replace("%%", "%"), ",")
            words = [
                field
                for command in commands_of(keys["command"].replace("%%", "%"))
                for word in command.words
                for field in expand(word, {})
            ]
            yield FileCommand(tuple(words), env, name=named[1] if named is not None else "")


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
