"""Read YAML into plain values with line numbers.

The dialect is PyYAML's YAML 1.1 with three exceptions: `12:30` and `1_000` are text, and `1e-3` is
a number. `Document.texts` keeps the original text of each scalar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from search_spaces.problems import Problem

Path = tuple[str | int, ...]
"""Keys and list indices from the top of a document to a value."""

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_TAG = "tag:yaml.org,2002:"

MOST_VALUES = 100_000
"""Limit against nested aliases, which can stand for millions of values."""


class _TooManyValuesError(Exception):
    """The document has more than `MOST_VALUES` values."""


@dataclass(slots=True)
class Document:
    """A YAML document as plain values.

    Attributes:
        data: Dictionaries, lists and scalars.
        lines: Line of every path, from 1.
        texts: Original text of every plain scalar.
        problems: Syntax errors, duplicate keys, keys that are not text.
    """

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of a path, or of the nearest value around it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


def dotted(path: Path) -> str:
    """Format a path: `space.speculation[1].topk`."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if out else part
    return out


def read(text: str) -> Document:
    """Read one YAML document; errors go to `problems`."""
    document = Document()
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        document.problems.append(Problem("", None, "Nested too deeply"))
        return document
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        message = f"Not YAML: {what}"
        begun = getattr(error, "context_mark", None)
        if mark is not None and begun is not None and begun.line != mark.line:
            message += f", {error.context} that begins on line {begun.line + 1}"  # type: ignore[attr-defined]
        if re.search(r"\btabs?\b|'\\t'", message):
            message += "; indent with spaces"
        document.problems.append(Problem("", mark.line + 1 if mark else None, message))
        return document
    if node is not None:
        try:
            document.data = _value(node, (), document, ())
        except _TooManyValuesError:
            message = f"Aliases expand to more than {MOST_VALUES:,} values; write fewer"
            document.problems[:] = [Problem("", None, message)]
    return document


def _value(
    node: yaml.Node, path: Path, document: Document, around: tuple[yaml.Node, ...]
) -> object:
    if len(document.lines) > MOST_VALUES:
        raise _TooManyValuesError
    document.lines.setdefault(path, node.start_mark.line + 1)
    if any(node is outer for outer in around):
        document.problems.append(
            Problem(dotted(path), node.start_mark.line + 1, "This alias contains itself; remove it")
        )
        return None
    around = (*around, node)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document, around)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(item, (*path, index), document, around) for index, item in enumerate(node.value)
        ]
    return _scalar(node, path, document)


def _mapping(
    node: yaml.MappingNode, path: Path, document: Document, around: tuple[yaml.Node, ...]
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.problems.append(
                Problem(dotted(path), line, "A key must be text, not a list or a mapping")
            )
            continue
        key = str(key_node.value)
        here = (*path, key)
        if key in out:
            first = document.lines[here]
            document.problems.append(
                Problem(dotted(here), line, f"Duplicate key (first on line {first}); remove one")
            )
            continue
        document.lines[here] = line
        out[key] = _value(value_node, here, document, around)
    return out


def _scalar(node: yaml.Node, path: Path, document: Document) -> object:
    text = str(node.value)
    if getattr(node, "style", None) in {"'", '"', "|", ">"}:
        return text
    document.texts[path] = text
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in {"yes", "true", "on"}
    if kind == "int" and _INT.fullmatch(text):
        return int(text)
    if (kind == "float" and _FLOAT.fullmatch(text)) or _EXPONENT.fullmatch(text):
        return float(text)
    return text
