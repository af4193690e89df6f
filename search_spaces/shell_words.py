"""Shell text as simple commands of words: quotes, continuations, comments, variables.

Only what a launch command needs of the POSIX shell and bash; nothing is run. A `$` whose value is
not in the text becomes `LIVE`, so that it is still told from a quoted dollar sign.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIVE = "\ue000"
"""Stands for the `$` of an expansion that is left to whoever runs the command."""

Kind = Literal["bare", "double", "literal"]

Variables = dict[str, "str | tuple[str, ...]"]
"""Values by name; a tuple is an array."""

_BLANKS = re.compile(r"[ \t\n]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_LIVE_NAME = re.compile(LIVE + r"\{([^{}]*)\}")
_LIVE_COMMAND = re.compile(LIVE + r"(\([^\n]*?\))")
_BRACED = re.compile(r"([A-Za-z_]\w*|[0-9@*#?])(?:\[[@*]\])?(?:(:?[-=+?])(.*))?", re.DOTALL)


class UnfinishedShellError(ValueError):
    """A quote, brace or parenthesis is opened and never closed; the message names its line."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word, quoted in one way.

    Attributes:
        kind: How it is quoted: not, in double quotes, or so that nothing in it is special.
        text: Without the quotes.
    """

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """One word, not expanded.

    Attributes:
        parts: Its pieces; none is the empty word.
        array: The words between the parentheses of `NAME=(...)`; `None` for all other words.
    """

    parts: tuple[Part, ...]
    array: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: words up to an operator, redirections left out."""

    words: tuple[Word, ...]


def commands(text: str) -> list[Command]:
    """The simple commands of a shell text, in order.

    Raises:
        UnfinishedShellError: A quote, brace or parenthesis is never closed.
    """
    return list(_Reader(text).commands())


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._here: list[str] = []  # ends of here-documents that begin after this line

    def commands(self) -> Iterator[Command]:
        words: list[Word] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif char in "<>" or self._text.startswith("&>", self._at):
                self._redirection()
            elif char in "\n;|&()":
                yield Command(tuple(words))
                words = []
                self._at += 1
                if char == "\n":
                    self._skip_here_documents()
            else:
                word = self._word()
                # `2>file`: the number belongs to the redirection.
                number = len(word.parts) == 1 and word.parts[0].text.isdigit()
                if not (number and self._text[self._at : self._at + 1] in {"<", ">"}):
                    words.append(word)
        yield Command(tuple(words))

    def _redirection(self) -> None:
        operator = re.compile(r"&>>?|<<<|<<-?|<>|>>|>\||[<>]&?").match(self._text, self._at)
        assert operator is not None  # noqa: S101 - the caller has seen its first sign
        self._at = operator.end()
        while self._text[self._at : self._at + 1] in {" ", "\t"}:
            self._at += 1
        if self._text[self._at : self._at + 1] not in {"", *"\n;|&()<>"}:
            target = self._word()
            if operator.group() in {"<<", "<<-"}:
                self._here.append("".join(part.text for part in target.parts))

    def _skip_here_documents(self) -> None:
        for end in self._here:
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                line = self._text[self._at : stop]
                self._at = min(stop + 1, len(self._text))
                if line.strip() == end:
                    break
        self._here = []

    def _word(self) -> Word:
        parts: list[Part] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "(" and len(parts) == 1 and _ARRAY.fullmatch(parts[0].text):
                return Word(tuple(parts), self._array())
            if char in " \t\n;|&()<>":
                break
            for part in self._parts(char):
                if parts and part.kind == parts[-1].kind == "bare":
                    parts[-1] = Part("bare", parts[-1].text + part.text)
                else:
                    parts.append(part)
        return Word(tuple(parts))

    def _parts(self, char: str) -> list[Part]:
        """The piece of a word that begins here."""
        following = self._text[self._at + 1 : self._at + 2]
        if char == "\\":
            self._at += 2
            return [] if following == "\n" else [Part("literal", following)]
        if char == "$" and following in {"'", '"'}:
            self._at += 1  # $'...' and $"...": read as the plain quotes
            char = following
        if char == "'":
            return [Part("literal", self._until("'"))]
        if char == '"':
            return self._double()
        if char in "$`":
            return [Part("bare", self._expansion())]
        self._at += 1
        return [Part("bare", char)]

    def _array(self) -> tuple[Word, ...]:
        start = self._at
        self._at += 1
        words: list[Word] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == ")":
                self._at += 1
                return tuple(words)
            if char == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif char in " \t\n" or char in ";|&(<>":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            else:
                words.append(self._word())
        raise self._unfinished("(", start)

    def _until(self, quote: str) -> str:
        start = self._at
        end = self._text.find(quote, start + 1)
        if end < 0:
            raise self._unfinished(quote, start)
        self._at = end + 1
        return self._text[start + 1 : end]

    def _double(self) -> list[Part]:
        start = self._at
        self._at += 1
        parts: list[Part] = [Part("double", "")]
        plain = ""
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return [*parts, Part("double", plain)]
            if char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                self._at += 2
                if following in {"$", "`", '"', "\\"}:
                    parts += [Part("double", plain), Part("literal", following)]
                    plain = ""
                elif following != "\n":
                    plain += char + following
            elif char in "$`":
                plain += self._expansion()
            else:
                plain += char
                self._at += 1
        raise self._unfinished('"', start)

    def _expansion(self) -> str:
        """The whole of `$NAME`, `${...}`, `$(...)` or backquotes, as written."""
        start = self._at
        if self._text[start] == "`":
            return f"$({self._until('`')})"
        opening = self._text[start + 1 : start + 2]
        if opening not in {"{", "("}:
            self._at += 1
            return "$"
        closing = {"{": "}", "(": ")"}[opening]
        depth = 0
        for at in range(start + 1, len(self._text)):
            depth += {opening: 1, closing: -1}.get(self._text[at], 0)
            if depth == 0:
                self._at = at + 1
                return self._text[start : at + 1]
        raise self._unfinished(f"${opening}", start)

    def _unfinished(self, what: str, start: int) -> UnfinishedShellError:
        line = self._text.count("\n", 0, start) + 1
        return UnfinishedShellError(f"`{what}` on line {line} is opened and never closed")


def assignment(word: Word) -> tuple[str, bool, Word] | None:
    """Name, whether it appends, and the value's word of `NAME=...`; `None` for other words."""
    if not word.parts or word.parts[0].kind != "bare":
        return None
    match = _ASSIGNMENT.match(word.parts[0].text)
    if match is None:
        return None
    rest = word.parts[0].text[match.end() :]
    parts = ((Part("bare", rest),) if rest else ()) + word.parts[1:]
    return match[1], match[2] == "+", Word(parts, word.array)


def expand_one(word: Word, variables: Variables, defaults: dict[str, str] | None = None) -> str:
    """A word as one text, without splitting: the value of an assignment."""
    fields = _fields(word, variables, {} if defaults is None else defaults, split=False)
    return " ".join(fields)


def expand(word: Word, variables: Variables, defaults: dict[str, str] | None = None) -> list[str]:
    """A word with its variables replaced, split at blanks as the shell splits it.

    Args:
        word: The word.
        variables: What the text has set so far.
        defaults: Gets the names whose default (`${NAME:-default}`) was taken.
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
                texts = tuple(_BLANKS.split(texts)) if splits else (texts,)
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
                yield f"{LIVE}({inner})", False
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


# Left to whoever runs the command


def live(name: str) -> str:
    """An expansion of `name` that is not made here."""
    return f"{LIVE}{{{name}}}"


def live_names(text: str) -> list[str]:
    """Names in `text` that are not set; `(...)` for the output of a command."""
    names = [re.split(r"[:\-=+?%#/\[,^]", n, maxsplit=1)[0] or n for n in _LIVE_NAME.findall(text)]
    return list(dict.fromkeys([*names, *_LIVE_COMMAND.findall(text)]))


def shown(text: str) -> str:
    """`text` with `$NAME` for what is left to whoever runs it."""

    def name(match: re.Match[str]) -> str:
        following = match.string[match.end() : match.end() + 1]
        plain = _NAME.fullmatch(match[1]) and not (following.isalnum() or following == "_")
        return f"${match[1]}" if plain else f"${{{match[1]}}}"

    return _LIVE_NAME.sub(name, text).replace(LIVE, "$")


def unread(text: str) -> str:
    """`text` as shell text again, to be read once more by an inner shell."""
    return shown(text)


def quoted(text: str) -> str:
    """`text` as one word for a POSIX shell; what is left to it is expanded there."""
    if text.startswith("~/") and LIVE not in text:
        return f"~/{shlex.quote(text[2:])}" if text[2:] else text  # the shell's home folder
    if LIVE not in text:
        return shlex.quote(text)
    escaped = re.sub(r'([\\"`$])', r"\\\1", text)
    # Inside $(...) and ${...} the shell reads the text as it stands.
    out = escaped
    for match in {*_LIVE_COMMAND.findall(escaped), *_LIVE_NAME.findall(escaped)}:
        out = out.replace(match, re.sub(r'\\([\\"`$])', r"\1", match))
    return f'"{shown(out)}"'


def merged(variables: Variables, more: Mapping[str, str | None]) -> Variables:
    """`variables` with an environment on top."""
    return {**variables, **{name: value for name, value in more.items() if value is not None}}
