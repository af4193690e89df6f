"""Split shell text into simple commands of words: quotes, continuations, comments, here-documents.

Covers the parts of POSIX shell and bash that launch commands use; nothing is run. `shell_expansion`
expands the words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["bare", "double", "literal"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


class UnfinishedShellError(ValueError):
    """A quote, brace or parenthesis is not closed; the message names its line."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word with one kind of quoting.

    Attributes:
        kind: Unquoted, in double quotes, or literal.
        text: Without the quotes.
    """

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word before expansion.

    Attributes:
        parts: Its pieces; the empty word has none.
        array: Words between the parentheses of `NAME=(...)`; `None` for other words.
    """

    parts: tuple[Part, ...]
    array: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: words up to an operator, without redirections."""

    words: tuple[Word, ...]


def commands(text: str) -> list[Command]:
    """Return the simple commands of a shell text, in order.

    Raises:
        UnfinishedShellError: A quote, brace or parenthesis is not closed.
    """
    return list(_Reader(text).commands())


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._here: list[str] = []  # delimiters of here-documents that begin after this line

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
        """The piece of a word at the beginning."""
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
        """The whole `$NAME`, `${...}`, `$(...)` or backquotes, as written."""
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
    """Name, whether it appends, and value of `NAME=...`; `None` for other words."""
    if not word.parts or word.parts[0].kind != "bare":
        return None
    match = _ASSIGNMENT.match(word.parts[0].text)
    if match is None:
        return None
    rest = word.parts[0].text[match.end() :]
    parts = ((Part("bare", rest),) if rest else ()) + word.parts[1:]
    return match[1], match[2] == "+", Word(parts, word.array)
