"""Write YAML with comments, which PyYAML drops."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WIDTH = 100
"""Maximum line length, if the text can be broken."""

_FURTHEST_ASIDE = 46
"""Comments beside values stand in one column, unless that would be further right than this."""

# Text that cannot be a number and has no character with a meaning in YAML.
_PLAIN = re.compile(r"[A-Za-z_/$][A-Za-z0-9_/.+@$~-]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Folded:
    """A long line that YAML folds over several lines and reads as one."""

    text: str


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment that belongs to no key."""

    text: str


@dataclass(frozen=True, slots=True)
class Choices:
    """A list of scalars, one per line, each with an optional comment."""

    values: Sequence[tuple[Scalar, str]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value.

    Attributes:
        key: The key.
        value: A scalar, a sequence or mapping in one line, or a value with lines of its own.
        above: Comment before the entry.
        beside: Comment to the right if it fits, else before the entry.
    """

    key: str
    value: Scalar | Sequence[object] | Mapping[str, object] | Folded | Choices | Block | Items
    above: str = ""
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping with one key per line."""

    entries: Sequence[Entry | Remark] = field(default=())


@dataclass(frozen=True, slots=True)
class Items:
    """A list of mappings with remarks between them."""

    items: Sequence[Block | Remark]


def render(document: Block) -> str:
    """Write a whole file, with a blank line before every section of several lines."""
    out: list[str] = []
    spaced = False
    for entry in document.entries:
        lines = _block_lines([entry], 0)
        section = isinstance(entry, Entry) and isinstance(entry.value, Block | Items | Folded)
        if out and (section or spaced or isinstance(entry, Remark)):
            out.append("")
        spaced = section or isinstance(entry, Remark)
        out += lines
    return "\n".join(out) + "\n"


def scalar(value: object) -> str:
    """Write a scalar that YAML 1.1 and 1.2 read alike; text is quoted if necessary."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _text(str(value))


def flow(value: object) -> str:
    """Write a value in one line: `[1, 2]`, `{concurrency: 8}`."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_text(str(key))}: {flow(part)}" for key, part in value.items())
        return f"{{{inner}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(flow, value))}]"
    return scalar(value)


def comment(text: str, indent: int = 0) -> list[str]:
    """Comment lines of at most `WIDTH` columns; line breaks of the text are kept."""
    lead = " " * indent + "# "
    return [
        line
        for paragraph in text.splitlines()
        for line in textwrap.wrap(
            paragraph,
            WIDTH,
            initial_indent=lead,
            subsequent_indent=lead,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _block_lines(entries: Sequence[Entry | Remark], indent: int) -> list[str]:
    written = [
        [] if isinstance(entry, Remark) else _entry_lines(entry, indent) for entry in entries
    ]
    lengths = [
        len(lines[0])
        for entry, lines in zip(entries, written, strict=True)
        if isinstance(entry, Entry) and entry.beside and len(lines[0]) <= _FURTHEST_ASIDE
    ]
    column = max(lengths, default=0)
    out: list[str] = []
    for entry, lines in zip(entries, written, strict=True):
        if isinstance(entry, Remark):
            out += comment(entry.text, indent)
            continue
        if entry.above:
            out += comment(entry.above, indent)
        if entry.beside:
            first = f"{lines[0].ljust(column)}  # {entry.beside}"
            if len(first) <= WIDTH and "\n" not in entry.beside:
                lines[0] = first
            else:
                out += comment(entry.beside, indent)
        out += lines
    return out


def _entry_lines(entry: Entry, indent: int) -> list[str]:
    lead = f"{' ' * indent}{_text(entry.key)}:"
    match entry.value:
        case Block(entries):
            lines = _block_lines(entries, indent + 2)
            if any(isinstance(inner, Entry) for inner in entries):
                return [lead, *lines]
            return [*(line[2:] for line in lines), f"{lead} {{}}"]
        case Items(items):
            return [lead, *_items_lines(items, indent + 2)]
        case Folded(text):
            return _folded(lead, text, indent + 2)
        case Choices(values):
            return [lead, *_choice_lines(values, indent + 2)]
        case value:
            return _one_line(lead, value, indent)


def _one_line(lead: str, value: object, indent: int) -> list[str]:
    line = f"{lead} {flow(value)}"
    if len(line) > WIDTH and isinstance(value, Sequence) and not isinstance(value, str):
        return [lead, *(f"{' ' * (indent + 2)}- {flow(item)}" for item in value)]
    return [line]


def _choice_lines(values: Sequence[tuple[Scalar, str]], indent: int) -> list[str]:
    written = [f"{' ' * indent}- {scalar(value)}" for value, _ in values]
    column = max(len(line) for line in written)
    out: list[str] = []
    for line, (_, why) in zip(written, values, strict=True):
        beside = f"{line.ljust(column)}  # {why}"
        if not why or len(beside) > WIDTH:
            out += [*comment(why, indent), line]
        else:
            out.append(beside)
    return out


def _items_lines(items: Sequence[Block | Remark], indent: int) -> list[str]:
    out: list[str] = []
    for item in items:
        if isinstance(item, Remark):
            out += comment(item.text, indent)
            continue
        lines = _block_lines(item.entries, indent + 2)
        first = next(n for n, line in enumerate(lines) if not line.lstrip().startswith("#"))
        out += [line[2:] for line in lines[:first]]
        out.append(f"{' ' * indent}- {lines[first].lstrip()}")
        out += lines[first + 1 :]
    return out


def _folded(lead: str, text: str, indent: int) -> list[str]:
    """Write a text as a folded block, or quoted if folding would change it."""
    if not text or not text.isprintable() or "  " in text or text != text.strip():
        return [f"{lead} {_text(text)}"]
    lines: list[str] = []
    # Keep a flag and its values in one line if they fit.
    for part in re.split(r" (?=--)", text):
        if lines and indent + len(lines[-1]) + 1 + len(part) <= WIDTH:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return [f"{lead} >-", *(" " * indent + line for line in lines)]


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if text.isprintable() and "'" not in text and ('"' in text or "\\" in text):
        return f"'{text}'"
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if character.isprintable():
        return character
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


_NO_BREAK = "\xa0"


def wrapped(text: str, first: str, others: str) -> list[str]:
    """Break text into lines of at most `WIDTH` columns, but never inside backticks."""
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        whole,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
