"""Find launch commands in files: Dockerfiles, compose, Kubernetes, systemd."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Literal

from search_spaces.launch_commands.layers import InContainer
from search_spaces.launch_commands.manifests import (
    FileCommand,
    UnreadableFileError,
    commands_of,
    compose_commands,
    kubernetes_commands,
)
from search_spaces.launch_commands.shell_expansion import Variables, expand, expand_one
from search_spaces.launch_commands.shell_words import assignment

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
