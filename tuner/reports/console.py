"""Width of the terminal, and tables that fit into it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console

from tuner.errors import copyable

if TYPE_CHECKING:
    from rich.table import Table

UNBOUND = 132
"""Columns where the output is no terminal and `COLUMNS` says nothing: a log need not fold."""

_BREAKS = "=,_-/"


def reader() -> Console:
    """Console on stdout with the width of the terminal or of `COLUMNS`."""
    console = Console()
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console
    return Console(width=UNBOUND)


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text in one line of output, with commands that can be copied."""
    console.print(
        copyable(text), style=style, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


def print_table(console: Console, table: Table) -> None:
    """Print a table without trailing blanks."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    lines = (line.rstrip() for line in captured.get().splitlines())
    console.file.write("\n".join(lines) + "\n")


def fold(text: str, width: int) -> str:
    """Break `text` into lines of at most `width`, between words or inside a long name."""
    lines = [""]
    for whole in text.split(" "):
        word = whole
        if lines[-1] and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        while len(word) > max(width, 1):
            behind = 1 + max(word.rfind(sign, 0, width) for sign in _BREAKS)
            cut = behind or max(width, 1)
            lines[-1:] = [word[:cut], ""]
            word = word[cut:]
        lines[-1] = word
    return "\n".join(lines)
