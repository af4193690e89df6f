"""Expand words of a shell text with the values in the text.

The `$` of a variable without a value in the text becomes `LIVE`, to distinguish it from a quoted
dollar sign.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from search_spaces.launch_commands.shell_words import Word

LIVE = "\ue000"
"""Stands for the `$` of an expansion that is left to whoever runs the command."""

Variables = dict[str, "str | tuple[str, ...]"]
"""Values by name; a tuple is an array."""

_BLANKS = re.compile(r"[ \t\n]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIVE_NAME = re.compile(LIVE + r"\{([^{}]*)\}")
_BRACED = re.compile(r"([A-Za-z_]\w*|[0-9@*#?])(?:\[[@*]\])?(?:(:?[-=+?])(.*))?", re.DOTALL)


def expand_one(word: Word, variables: Variables, defaults: dict[str, str] | None = None) -> str:
    """Expand a word to one text, without splitting, as for an assignment."""
    fields = _fields(word, variables, {} if defaults is None else defaults, split=False)
    return " ".join(fields)


def expand(word: Word, variables: Variables, defaults: dict[str, str] | None = None) -> list[str]:
    """Replace variables of a word and split it at blanks, as the shell does.

    Args:
        word: The word.
        variables: Variables that the text has set so far.
        defaults: Receives the names whose default (`${NAME:-default}`) was used.
    """
    return _fields(word, variables, {} if defaults is None else defaults, split=True)


def _fields(
    word: Word, variables: Variables, defaults: dict[str, str], *, split: bool
) -> list[str]:
    # An unquoted word that expands to nothing is no word; an empty quoted one is.
    fields: list[str] = []
    current: str | None = None if any(part.kind == "bare" for part in word.parts) else ""
    for part in word.parts:
        if part.kind != "bare":
            current = current or ""
        pieces: list[tuple[str | tuple[str, ...], bool]] = [(part.text, False)]
        if part.kind != "literal":
            pieces = list(_pieces(part.text, variables, defaults))
        for text, expanded in pieces:
            texts = text
            if isinstance(texts, str):
                splits = part.kind == "bare" and expanded and split
                texts = _at_blanks(texts) if splits else (texts,)
            for index, member in enumerate(texts):
                if index and current is not None:
                    fields.append(current)
                    current = None
                if member or isinstance(text, tuple):
                    current = (current or "") + member
    return fields if current is None else [*fields, current]


def _pieces(
    text: str, variables: Variables, defaults: dict[str, str]
) -> Iterator[tuple[str | tuple[str, ...], bool]]:
    """Pieces of a text, each with whether it came from an expansion."""
    at = 0
    while at < len(text):
        dollar = text.find("$", at)
        if dollar < 0:
            yield text[at:], False
            return
        if dollar > at:
            yield text[at:dollar], False
        following = text[dollar + 1 : dollar + 2]
        if following in {"{", "("}:
            end = _closing(text, dollar + 1)
            inner = text[dollar + 2 : end]
            if following == "(":
                total = _arithmetic(inner, variables)
                yield f"{LIVE}({inner})" if total is None else total, False
            else:
                yield _braced(inner, variables, defaults), True
            at = end + 1
        elif (name := _NAME.match(text, dollar + 1)) is not None:
            yield _value(name.group(), variables), True
            at = name.end()
        elif following and following in "0123456789@*#?":
            yield f"{LIVE}{{{following}}}", False
            at = dollar + 2
        else:
            yield "$", False
            at = dollar + 1


def _at_blanks(text: str) -> tuple[str, ...]:
    """Split like the shell; the output of a command counts as one word."""
    kept = _live_commands(text)
    marked = text
    for index, command in enumerate(kept):
        marked = marked.replace(command, f"\0{index}\0", 1)
    return tuple(
        re.sub("\0([0-9]+)\0", lambda found: kept[int(found[1])], part)
        for part in _BLANKS.split(marked)
    )


def _arithmetic(inner: str, variables: Variables) -> str | None:
    """Value of `$((...))` if all names have known numbers; else `None`."""
    if not (inner.startswith("(") and inner.endswith(")")):
        return None
    expression = inner[1:-1].replace("$", "")
    for name in sorted(set(_NAME.findall(expression)), key=len, reverse=True):
        value = variables.get(name)
        if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,9}", value):
            return None
        expression = re.sub(rf"\b{name}\b", value, expression)
    numbers = re.fullmatch(r"\s*([0-9]{1,9})(?:\s*([-+*/])\s*([0-9]{1,9}))?\s*", expression)
    if numbers is None:
        return None
    left, sign, right = int(numbers[1]), numbers[2], int(numbers[3] or 0)
    if sign == "/":
        return str(left // right) if right else None
    return str({None: left, "+": left + right, "-": left - right, "*": left * right}[sign])


def _closing(text: str, start: int) -> int:
    opening = text[start]
    closing = {"{": "}", "(": ")"}[opening]
    depth = 0
    for at in range(start, len(text)):
        depth += {opening: 1, closing: -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)


def _value(name: str, variables: Variables) -> str | tuple[str, ...]:
    value = variables.get(name)
    if isinstance(value, tuple):
        return value[0] if value else ""
    return f"{LIVE}{{{name}}}" if value is None else value


def _braced(inner: str, variables: Variables, defaults: dict[str, str]) -> str | tuple[str, ...]:
    match = _BRACED.fullmatch(inner)
    if match is None:
        return f"{LIVE}{{{inner}}}"
    name, operator, default = match.groups()
    value = variables.get(name)
    if isinstance(value, tuple):
        return value if "[" in inner else (value[0] if value else "")
    if operator is None or operator.endswith("?"):
        return f"{LIVE}{{{name}}}" if value is None else value
    set_here = bool(value) if operator.startswith(":") else value is not None
    if operator.endswith("+"):
        return _text(default, variables, defaults) if set_here else ""
    if set_here and value is not None:
        return value
    taken = _text(default, variables, defaults)
    defaults[name] = taken
    return taken


def _text(text: str, variables: Variables, defaults: dict[str, str]) -> str:
    inner = text
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        inner = text[1:-1]
    pieces = (piece for piece, _ in _pieces(inner, variables, defaults))
    return "".join(p if isinstance(p, str) else " ".join(p) for p in pieces)


def used_names(word: Word) -> list[str]:
    """Names of the variables in a word."""
    parts = "".join(part.text for part in word.parts if part.kind != "literal")
    return list(dict.fromkeys(re.findall(r"\$\{?(\w+)", parts)))


# Live variables


def live(name: str) -> str:
    """A live expansion of `name`."""
    return f"{LIVE}{{{name}}}"


def live_names(text: str) -> list[str]:
    """Names in `text` that are not set; `(...)` for the output of a command."""
    names = [re.split(r"[:\-=+?%#/\[,^]", n, maxsplit=1)[0] or n for n in _LIVE_NAME.findall(text)]
    return list(dict.fromkeys([*names, *_live_commands(text)]))


def _live_commands(text: str) -> list[str]:
    """The outermost `(...)` of every command substitution."""
    found = []
    at = text.find(f"{LIVE}(")
    while at >= 0:
        end = _closing(text, at + 1)
        found.append(text[at + 1 : end + 1])
        at = text.find(f"{LIVE}(", end)
    return found


def shown(text: str) -> str:
    """`text` with `$NAME` for live variables."""

    def name(match: re.Match[str]) -> str:
        following = match.string[match.end() : match.end() + 1]
        plain = _NAME.fullmatch(match[1]) and not (following.isalnum() or following == "_")
        return f"${match[1]}" if plain else f"${{{match[1]}}}"

    return _LIVE_NAME.sub(name, text).replace(LIVE, "$")


def unread(text: str) -> str:
    """`text` as shell text for an inner shell."""
    return shown(text)


def quoted(text: str) -> str:
    """Quote `text` for a POSIX shell that expands live variables."""
    if text.startswith("~/") and LIVE not in text:
        return f"~/{shlex.quote(text[2:])}" if text[2:] else text  # the shell's home folder
    if LIVE not in text:
        return shlex.quote(text)
    escaped = re.sub(r'([\\"`$])', r"\\\1", text)
    # Inside $(...) and ${...} the shell reads the text unchanged.
    out = escaped
    for match in {*_live_commands(escaped), *_LIVE_NAME.findall(escaped)}:
        out = out.replace(match, re.sub(r'\\([\\"`$])', r"\1", match))
    return f'"{shown(out)}"'


def merged(variables: Variables, more: Mapping[str, str | None]) -> Variables:
    """`variables` with an environment that overrides them."""
    return {**variables, **{name: value for name, value in more.items() if value is not None}}
