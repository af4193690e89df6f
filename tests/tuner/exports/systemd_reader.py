"""Reads a unit file as systemd does, as far as exported ones go (systemd.syntax, systemd.service).

Checked in `test_export_systemd` against systemd's own word splitter, where that is installed.
"""

from __future__ import annotations

import re

_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " ",
    "\\": "\\", '"': '"', "'": "'",
}  # fmt: skip


def lines_of(text: str) -> list[tuple[str, str, str]]:
    """Section, key and value of each assignment; lines that end in a backslash go on."""
    found, section, pending = [], "", ""
    for line in text.split("\n"):
        if line.lstrip().startswith(("#", ";")):
            continue  # also between the lines of one value
        joined = pending + line
        if joined.endswith("\\"):
            pending = joined[:-1] + " "
            continue
        pending = ""
        if not joined.strip():
            continue
        if joined.startswith("["):
            section = joined.strip("[]")
            continue
        key, equals, value = joined.partition("=")
        assert equals, f"systemd would not know {joined!r}"
        found.append((section, key.strip(), value.strip()))
    assert not pending
    return found


def words_of(value: str) -> list[str]:
    """Words of a value, quotes and C's escapes resolved."""
    out: list[bytes] = []
    word: bytearray | None = None
    quote, at = "", 0
    while at < len(value):
        c = value[at]
        at += 1
        if c == "\\":
            c, at = value[at], at + 1
            word = bytearray() if word is None else word
            if c == "x":
                word.append(int(value[at : at + 2], 16))
                at += 2
            else:
                word += _ESCAPES[c].encode()
        elif quote and c == quote:
            quote = ""
        elif not quote and c in "\"'":
            quote, word = c, bytearray() if word is None else word
        elif not quote and c in " \t\n\r":
            if word is not None:
                out.append(bytes(word))
            word = None
        else:
            word = (bytearray() if word is None else word) + c.encode()
    assert not quote, "unbalanced quoting"
    if word is not None:
        out.append(bytes(word))
    return [w.decode() for w in out]


def without_specifiers(word: str) -> str:
    """`%%` is one `%`; nothing else with a `%` may be there."""
    rest = word.replace("%%", "")
    assert "%" not in rest, f"systemd would expand {word!r}"
    return word.replace("%%", "%")


def expanded(word: str, variables: dict[str, str]) -> str:
    """Variables of a command: `$$` is one `$`, `${NAME}` its value; nothing else may be there."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables[match[1]]

    rest = re.sub(r"\$\$|\$\{\w+\}", "", word)
    assert "$" not in rest, f"systemd would expand {word!r}"
    return re.sub(r"\$\$|\$\{(\w+)\}", value, word)
