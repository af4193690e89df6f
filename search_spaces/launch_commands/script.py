"""Find launches in a shell text: variables set, exported, and commands run."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from search_spaces.launch_commands.shell_expansion import (
    Variables,
    expand,
    expand_one,
    merged,
    shown,
    used_names,
)
from search_spaces.launch_commands.shell_words import Command, Word, assignment, commands
from search_spaces.launch_commands.words import BUILTINS, KEYWORDS, Found, from_words
from search_spaces.secrets import is_secret
from search_spaces.variables import unknown_variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NAME = re.compile(r"[A-Za-z_]\w*")

_Assignment = tuple[str, bool, Word]


@dataclass(slots=True)
class _Scope:
    """Variables that a script has set so far."""

    variables: Variables = field(default_factory=dict)
    exported: dict[str, str | None] = field(default_factory=dict)
    all_exported: bool = False
    # Values that override the script's values.
    given: Mapping[str, str] = field(default_factory=dict)
    # Origin of a variable's value, for notes.
    remarks: dict[str, dict[str, None]] = field(default_factory=dict)
    _seen: dict[str, list[str]] = field(default_factory=dict)

    def value_of(self, target: _Assignment) -> str | tuple[str, ...]:
        word = target[2]
        words = (word,) if word.array is None else word.array
        for part in words:
            self.remarks.setdefault(target[0], {}).update(self.remarks_on(part))
        if word.array is None:
            return expand_one(word, self.variables)
        return tuple(m for w in words for m in expand(w, self.variables))

    def remarks_on(self, word: Word) -> dict[str, None]:
        """Notes on the variables that a word uses."""
        defaults: dict[str, str] = {}
        expand(word, self.variables, defaults)
        out = {
            f"`${name}` is taken as its default, `{shown(value)}`": None
            for name, value in defaults.items()
            if value and name not in self.given
        }
        for name in used_names(word):
            if name in self.given:
                continue
            out |= self.remarks.get(name, {})
            if len(values := self._seen.get(name, [])) > 1:
                shown_values = ", ".join(
                    f"`{shown(value)}`" if value else "nothing" for value in values
                )
                out[f"`${name}` is set to {shown_values} in turn; the last one is taken"] = None
        return out

    def assign(self, target: _Assignment, value: str | tuple[str, ...]) -> None:
        name, appends, _ = target
        if name in self.given:
            appends, value = False, self.given[name]
        old = self.variables.get(name)
        if appends and isinstance(old, tuple):
            value = (*old, value) if isinstance(value, str) else (*old, *value)
        elif appends and isinstance(old, str):
            value = old + (value if isinstance(value, str) else " ".join(value))
        elif isinstance(value, str) and not is_secret(name):
            seen = self._seen.setdefault(name, [])
            self._seen[name] = [*(v for v in seen if v != value), value]
        self.variables[name] = value
        if isinstance(value, str) and (self.all_exported or name in self.exported):
            self.exported[name] = value

    def unset(self, names: Sequence[str]) -> None:
        for name in names:
            if _NAME.fullmatch(name):
                self.variables.pop(name, None)
                self.exported[name] = None


def launches(
    text: str,
    env: Mapping[str, str | None] | None = None,
    depth: int = 0,
    *,
    given: Mapping[str, str] | None = None,
) -> Iterator[Found]:
    """Return every launch of SGLang in a shell text.

    Args:
        text: A command or a script.
        env: Variables of the text that reach SGLang.
        depth: Number of enclosing shells.
        given: Values of variables; they override values of the text.

    Raises:
        UnfinishedShellError: A quote or parenthesis is not closed.
    """
    given = given or {}
    known = merged(merged({}, env or {}), given)
    exported = {name: given.get(name, value) for name, value in (env or {}).items()}
    scope = _Scope(known, exported, given=given)
    for command in commands(text):
        yield from _command(command, scope, depth)


def _command(command: Command, scope: _Scope, depth: int) -> Iterator[Found]:
    words = list(command.words)
    while words and len(words[0].parts) == 1 and words[0].parts[0].text in KEYWORDS:
        del words[0]
    assigned: list[tuple[_Assignment, str | tuple[str, ...]]] = []
    while words and (target := assignment(words[0])) is not None:
        assigned.append((target, scope.value_of(target)))
        del words[0]
    if not words:
        for target, value in assigned:
            scope.assign(target, value)
        return
    own = {
        target[0]: scope.given.get(target[0], value)
        for target, value in assigned
        if isinstance(value, str)
    }
    first = "".join(part.text for part in words[0].parts)
    if first in BUILTINS - {"unset", "set"}:
        _declaration(first, words[1:], scope)
        return
    expanded = [f for word in words for f in expand(word, scope.variables)]
    if first == "unset":
        scope.unset(expanded[1:])
    elif first == "set":
        scope.all_exported |= "-a" in expanded or "allexport" in expanded
    else:
        remarks = {note: None for word in words for note in scope.remarks_on(word)}
        env = _of_the_server({**scope.exported, **own}, words)
        read = functools.partial(launches, given=scope.given)
        for found in from_words(expanded, env, read, depth):
            yield replace(found, notes=(*remarks, *found.notes))


def _of_the_server(env: dict[str, str | None], words: Sequence[Word]) -> dict[str, str | None]:
    """Variables without those that only build the command line and that SGLang does not read."""
    used = {name for word in words for name in used_names(word)}
    return {
        name: value
        for name, value in env.items()
        if name not in used or unknown_variable(name) is None
    }


def _declaration(kind: str, words: Sequence[Word], scope: _Scope) -> None:
    exports = kind == "export"
    for word in words:
        target = assignment(word)
        if target is not None:
            if exports:
                scope.exported.setdefault(target[0], None)
            scope.assign(target, scope.value_of(target))
            continue
        for text in expand(word, scope.variables):
            if text.startswith("-"):
                exports = exports or "x" in text
            elif exports and isinstance(value := scope.variables.get(text), str):
                scope.exported[text] = value
