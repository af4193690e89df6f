"""Finds SGLang's entry point in shell text: prefixes, containers and inner shells taken off."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from search_spaces.launch_container import CONTAINER_ENGINES, container_layer, kubectl_layer
from search_spaces.launch_layers import Layer, Words
from search_spaces.shell_words import (
    LIVE,
    Command,
    Variables,
    assignment,
    commands,
    expand,
    expand_one,
    merged,
    shown,
    unread,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MODULES = frozenset(
    {"sglang.launch_server", "sglang.srt.server", "sglang.srt.entrypoints.http_server"}
)
"""Python modules that start one SGLang server (`sglang.srt.server` was the first one's name)."""

_PYTHON = re.compile(r"(.*/)?(python|pypy)[0-9.]*")
_PYTHON_SCRIPT = re.compile(r"(.*/)?launch_server\.py")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ash"})
_KEYWORDS = frozenset(
    {"then", "do", "else", "if", "elif", "while", "until", "{", "!", "exec", "time", "command",
     "nohup", "builtin", "eval"}
)  # fmt: skip
_LAUNCH = re.compile(r"sglang\.(launch_server|srt\.)|\bsglang\s+serve\b|launch_server\.py")
_SET = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_EXPORTED = re.compile(r"--export=(.*)", re.DOTALL)
_SSH_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Found:
    """A launch in a text.

    Attributes:
        python: The interpreter; `None` for `sglang serve`.
        entry: The words of the entry point.
        arguments: The words after it.
        env: Variables that reach SGLang; `None` is removed.
        layers: What stands around it, outermost first.
        notes: What was guessed.
        defaults: Names whose default (`${NAME:-default}`) was taken.
    """

    python: str | None
    entry: tuple[str, ...]
    arguments: tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)
    layers: tuple[Layer, ...] = ()
    notes: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Scope:
    """What a script has set so far."""

    variables: Variables = field(default_factory=dict)
    exported: dict[str, str | None] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    all_exported: bool = False
    notes: list[str] = field(default_factory=list)

    def assign(self, command_word: tuple[str, bool, object], value: str | tuple[str, ...]) -> None:
        name, appends, _ = command_word
        old = self.variables.get(name)
        if appends and old is not None:
            if isinstance(old, tuple):
                value = (*old, *((value,) if isinstance(value, str) else value))
            else:
                value = old + (value if isinstance(value, str) else " ".join(value))
        self.variables[name] = value
        if isinstance(value, str) and (self.all_exported or name in self.exported):
            self.exported[name] = value


def launches(
    text: str,
    env: Mapping[str, str | None] | None = None,
    variables: Variables | None = None,
    depth: int = 0,
) -> Iterator[Found]:
    """Every launch of SGLang in a shell text.

    Args:
        text: One command or a script.
        env: Variables that the text starts with and that reach SGLang.
        variables: Further variables that the text knows.
        depth: How many shells are around it.

    Raises:
        UnfinishedShellError: A quote or parenthesis is never closed.
    """
    if depth > _DEEPEST:
        return
    scope = _Scope(merged(variables or {}, env or {}), dict(env or {}))
    for command in commands(text):
        yield from _command(command, scope, depth)


def _command(command: Command, scope: _Scope, depth: int) -> Iterator[Found]:
    words = list(command.words)
    while words and len(words[0].parts) == 1 and words[0].parts[0].text in _KEYWORDS:
        del words[0]
    own: dict[str, str | None] = {}
    assigned = []
    while words and (found := assignment(words[0])) is not None:
        name, _, value = found
        if value.array is not None:
            members = [m for w in value.array for m in expand(w, scope.variables, scope.defaults)]
            assigned.append((found, tuple(members)))
        else:
            text = expand_one(value, scope.variables, scope.defaults)
            assigned.append((found, text))
            own[name] = text
        del words[0]
    if not words:
        for target, value_of in assigned:
            scope.assign(target, value_of)
        return
    first = "".join(part.text for part in words[0].parts)
    if first in {"export", "declare", "typeset", "readonly", "local"}:
        _declaration(first, words[1:], scope)
        return
    expanded = [f for word in words for f in expand(word, scope.variables, scope.defaults)]
    if first == "unset":
        for name in expanded[1:]:
            scope.variables.pop(name, None)
            scope.exported[name] = None
    elif first == "set":
        scope.all_exported = scope.all_exported or "-a" in expanded or "allexport" in expanded
    else:
        for found in from_words(expanded, {**scope.exported, **own}, depth):
            yield replace(found, defaults={**scope.defaults, **found.defaults})


def _declaration(kind: str, words: Sequence[object], scope: _Scope) -> None:
    exports = kind == "export"
    for word in words:
        found = assignment(word)  # type: ignore[arg-type]
        if found is not None and found[2].array is None:
            name = found[0]
            if exports:
                scope.exported.setdefault(name, None)
            scope.assign(found, expand_one(found[2], scope.variables, scope.defaults))
            continue
        for text in expand(word, scope.variables, scope.defaults):  # type: ignore[arg-type]
            if text.startswith("-"):
                exports = exports or "x" in text
            elif exports and isinstance(value := scope.variables.get(text), str):
                scope.exported[text] = value


def from_words(
    words: Sequence[str], env: Mapping[str, str | None], depth: int = 0
) -> Iterator[Found]:
    """The launches in the words of one command.

    Args:
        words: As a program gets them.
        env: Variables that the command has.
        depth: How many shells are around it.
    """
    if depth > _DEEPEST:
        return
    words = list(words)
    variables = dict(env)
    prefix: list[str] = []
    at = 0
    while at < len(words):
        word, rest = words[at], words[at + 1 :]
        base = word.rsplit("/", 1)[-1]
        if (entry := _entry(words[at:])) is not None:
            yield _entered(entry, words[at:], variables, prefix)
            return
        if base == "env" and rest and (_SET.match(rest[0]) or rest[0].startswith("-")):
            at += 1 + _env_words(rest, variables)
            continue
        if base == "sudo":
            while at + 1 < len(words) and (found := _SET.fullmatch(words[at + 1])):
                variables[found[1]] = found[2]
                words = [*words[: at + 1], *words[at + 2 :]]
        inner: Iterator[Found] | None = None
        if base in CONTAINER_ENGINES and (layer := container_layer(words[at:], variables)):
            # Only what the container is given reaches SGLang; the rest stays outside.
            notes = layer.notes
            inner = from_words(layer.words, layer.env, depth + 1)
            yield from _within(inner, prefix, layer.layer, notes)
            return
        if base == "kubectl" and (layer := kubectl_layer(words[at:])):
            inner = from_words(layer.words, {}, depth + 1)
            yield from _within(inner, prefix, layer.layer, ())
            return
        if base == "ssh" and (end := _ssh_end(rest)) is not None:
            text = " ".join(unread(w) for w in rest[end:])
            layer_words = Words((word, *rest[:end]), joins=True)
            yield from _within(launches(text, depth=depth + 1), prefix, layer_words, ())
            return
        if (script := _script(base, rest)) is not None:
            yield from _within(launches(unread(script), variables, depth=depth + 1), prefix)
            return
        if _holds_script(word):
            found_any = list(launches(unread(word), variables, depth=depth + 1))
            note = f"It is started within `{shown(' '.join(prefix))} ...`, which is left out"
            yield from _within(iter(found_any), [], None, (note,) if prefix else ())
            return
        if (exported := _EXPORTED.fullmatch(word)) is not None:
            for item in exported[1].split(","):
                if set_here := _SET.fullmatch(item):
                    variables[set_here[1]] = set_here[2]
        prefix.append(word)
        at += 1


def _within(
    inner: Iterator[Found],
    prefix: Sequence[str],
    layer: Layer | None = None,
    notes: Sequence[str] = (),
) -> Iterator[Found]:
    around: tuple[Layer, ...] = (Words(tuple(prefix)),) if prefix else ()
    if layer is not None:
        around = (*around, layer)
    for found in inner:
        yield replace(found, layers=(*around, *found.layers), notes=(*notes, *found.notes))


def _entered(
    entry: tuple[str | None, int], words: Sequence[str], env: Mapping[str, str | None],
    prefix: Sequence[str],
) -> Found:  # fmt: skip
    python, length = entry
    return Found(
        python=python,
        entry=tuple(words[:length]),
        arguments=tuple(words[length:]),
        env=dict(env),
        layers=(Words(tuple(prefix)),) if prefix else (),
    )


def _entry(words: Sequence[str]) -> tuple[str | None, int] | None:
    """The interpreter and the number of words of an entry point that begins here."""
    base = words[0].rsplit("/", 1)[-1]
    if base == "sglang" and words[1:2] == ["serve"]:
        return None, 2
    if not (_PYTHON.fullmatch(words[0]) or words[0].startswith(LIVE)):
        return None
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        at += 2 if words[at] in {"-X", "-W"} else 1
    if words[at : at + 1] == ["-m"] and at + 1 < len(words):
        if words[at + 1] in MODULES:
            return words[0], at + 2
        if words[at + 1] == "sglang.cli.main" and words[at + 2 : at + 3] == ["serve"]:
            return words[0], at + 3
    if at < len(words) and _PYTHON_SCRIPT.fullmatch(words[at]) and "sglang" in words[at]:
        return words[0], at + 1
    return None


def _env_words(rest: Sequence[str], variables: dict[str, str | None]) -> int:
    at = 0
    while at < len(rest):
        word = rest[at]
        if found := _SET.fullmatch(word):
            variables[found[1]] = found[2]
        elif word in {"-u", "--unset"} and at + 1 < len(rest):
            at += 1
            variables[rest[at]] = None
        elif word.startswith("--unset="):
            variables[word.partition("=")[2]] = None
        elif word.startswith("-u") and len(word) > 2:
            variables[word[2:]] = None
        elif not word.startswith("-"):
            break
        at += 1
    return at


def _script(base: str, rest: Sequence[str]) -> str | None:
    """The text that `bash -c TEXT` runs."""
    if base not in _SHELLS:
        return None
    for at, word in enumerate(rest[:-1]):
        if not word.startswith(("-", "+")):
            return None
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            return rest[at + 1]
    return None


def _holds_script(word: str) -> bool:
    return bool(re.search(r"\s", word)) and _LAUNCH.search(word) is not None


def _ssh_end(rest: Sequence[str]) -> int | None:
    """How many words after `ssh` are its own: options and the host."""
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        at += 2 if len(rest[at]) == 2 and rest[at][1] in _SSH_WITH_VALUE else 1
    return at + 1 if at + 1 < len(rest) else None


def mentions_sglang(text: str) -> bool:
    """Whether a text names an entry point of SGLang at all."""
    return _LAUNCH.search(text) is not None
