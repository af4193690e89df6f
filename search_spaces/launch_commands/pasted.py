"""Clean pasted text: remove prompts, fences and typographic characters."""

from __future__ import annotations

import json
import re

from search_spaces.launch_commands.shell_expansion import LIVE

_PLAIN = str.maketrans(
    {
        "\u00a0": " ", "\u2007": " ", "\u202f": " ", "\u3000": " ",
        "\u200b": "", "\u200c": "", "\u200d": "", "\ufeff": "", "\u2060": "",
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'",
        "\u2010": "-", "\u2011": "-", "\u2212": "-",
        LIVE: "",
        "\0": "",
        "\r": "\n", "\x0b": "\n", "\x0c": "\n", "\u2028": "\n", "\u2029": "\n", "\x85": "\n",
    }
)  # fmt: skip
# A long dash of a web page stands for two hyphens.
_DASHES = re.compile(r"(?<!\S)(?:-?[\u2013\u2014\u2015]-?)(?=[A-Za-z])")
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n`]*$", re.MULTILINE)
_COMMAND_LINE = re.compile(r"^command:[ \t]+(\".*\")[ \t]*$", re.MULTILINE)
_PROMPT = re.compile(
    r"^[ \t]*(?:(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+[:~ ][^\n$#]*[$#]|[$%>\u276f])[ \t]+)+"
)
_SECOND_PROMPT = re.compile(r"^[ \t]*>[ \t]+(?=-)")  # a redirection
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\[ \t]*(?:[ \t]#.*)?$")
# Line continuations of cmd and PowerShell.
_CONTINUED_ON_WINDOWS = re.compile(r"(?<=[ \t])[`^][ \t]*$")
_FLAG_LINE = re.compile(r"[ \t]*--?[A-Za-z]")


# `ps aux`, `ps -ef`, and a process id alone.
_PS = re.compile(
    r"^[ \t]*(?:[\w.+-]+[ \t]+\d+[ \t]+[\d.]+[ \t]+[\d.]+[ \t]+\d+[ \t]+\d+[ \t]+\S+[ \t]+\S+"
    r"[ \t]+\S+[ \t]+[\d:.-]+|[\w.+-]+[ \t]+\d+[ \t]+\d+[ \t]+\d+[ \t]+\S+[ \t]+\S+[ \t]+[\d:.-]+"
    r"|\d+)[ \t]+(?=\S*(?:python|sglang))"
)


def argument_list(text: str) -> list[str] | None:
    """Words of a JSON list or `/proc/PID/cmdline`; `None` for other texts."""
    if "\0" in text:
        return text.removesuffix("\0").split("\0")
    if not text.lstrip().startswith("["):
        return None
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return [str(word) for word in words] if isinstance(words, list) else None


def stated_command(text: str) -> str | None:
    """Value of `command` in a JSON object, or in YAML quoted as JSON.

    `tuner export` writes both.
    """
    if text.lstrip().startswith("{"):
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError):
            return None
        stated = whole.get("command") if isinstance(whole, dict) else None
    elif (line := _COMMAND_LINE.search(text)) is not None:
        try:
            stated = json.loads(line[1])
        except ValueError:
            return None
    else:
        return None
    return stated if isinstance(stated, str) else None


def plain(text: str) -> str:
    """Replace typographic quotes, blanks, line ends and dashes."""
    return _DASHES.sub("--", text.replace("\r\n", "\n").translate(_PLAIN))


def fenced(text: str) -> list[str]:
    """Text between Markdown fences; empty without fences."""
    marks = list(_FENCE.finditer(text))
    blocks = []
    for opening, closing in zip(marks[::2], marks[1::2], strict=False):
        blocks.append(text[opening.end() + 1 : closing.start()])
    if len(marks) % 2:
        blocks.append(text[marks[-1].end() + 1 :])
    return blocks


def shell_text(text: str) -> str:
    """Shell text without prompts, with continued lines joined.

    Blanks and comments after a backslash, comment lines between, and lines of flags after a line
    without a backslash count as parts of the command.
    """
    out: list[str] = []
    continued = False
    lines = text.split("\n")
    if sum(_CONTINUED_ON_WINDOWS.search(line) is not None for line in lines[:-1]) == (
        text.count("`") + text.count(" ^")
    ):
        lines = [_CONTINUED_ON_WINDOWS.sub("\\\\", line) for line in lines]
    for raw in lines:
        line = (_SECOND_PROMPT if continued else _PROMPT).sub("", raw, count=1)
        line = line if continued else _PS.sub("", line, count=1)
        if continued and line.lstrip().startswith("#"):
            # A shell would end the command here, which is surely not intended.
            continue
        if out and not continued and _FLAG_LINE.match(line) and out[-1].strip():
            out[-1] += " \\"
        match = _CONTINUED.search(line)
        continued = match is not None
        if match is not None:
            line = line[: match.end(1)] + "\\"
        out.append(line)
    if continued:
        out[-1] = out[-1].removesuffix("\\")
    return "\n".join(out)
