"""Export as a systemd service.

`%` begins a specifier and, in a command, `$` a variable; both are doubled. Words are in double
quotes with C escapes (`systemd.syntax`, `systemd.service`; read in systemd 252).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tuner.exports.exported import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuner.exports.exported import Exported, Word

EXECUTABLE = False

_SIMPLE = re.compile(r"[A-Za-z0-9_./:=,@+-]+")


def write(exported: Exported) -> str:
    """See `tuner.exports.Format`."""
    sections = [
        "\n".join(f"# {line}" for line in _comments(exported)),
        "[Unit]",
        f"Description={_description(exported)}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=exec",
        *_environment(exported),
        f"ExecStart={_command(exported)}",
        "Restart=on-failure",
        "RestartSec=10",
        # SGLang's first process stops the others; systemd kills processes that remain.
        "KillMode=mixed",
        "TimeoutStopSec=60",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(sections) + "\n"


def environment_file(exported: Exported) -> str:
    """File of the secrets, readable by root only."""
    return f"/etc/sglang/{exported.name}.env"


def quoted(word: str, *, in_command: bool) -> str:
    """Quote a word for systemd.

    Args:
        word: Any text.
        in_command: Whether the word is part of `ExecStart=`, where variables are expanded.
    """
    text = word.replace("%", "%%")
    if in_command:
        text = text.replace("$", "$$")
    return text if _SIMPLE.fullmatch(text) else f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def _comments(exported: Exported) -> Iterator[str]:
    yield from exported.remarks
    yield from exported.changes
    for note in exported.own_notes:
        yield f"NOTE: {note}"
    yield f"Save it as /etc/systemd/system/{exported.name}.service, then start it with:"
    yield f"systemctl daemon-reload && systemctl enable --now {exported.name}"
    yield "Set User=, and WorkingDirectory= if a path is relative."
    if exported.secrets:
        names = ", ".join(f"{name}=..." for name in _names(exported))
        yield f"{environment_file(exported)} (mode 0600) must contain {names}"
        yield "The process list shows an API key that is given as a flag."
    yield f"The server is ready when /health answers; a start may take {exported.start_s} s"
    yield f"({exported.start_reason})."


def _description(exported: Exported) -> str:
    mark = " (SIMULATED)" if exported.simulated else ""
    return f"SGLang, study {exported.study}, trial {exported.trial}{mark}"


def _names(exported: Exported) -> list[str]:
    """Variables in the file of secrets: one per secret flag, or the secret variable itself."""
    flags = [value.name for _, value in exported.flags if isinstance(value, Secret)]
    env = [name for name, value in exported.env if isinstance(value, Secret)]
    return list(dict.fromkeys((*flags, *env)))


def _environment(exported: Exported) -> Iterator[str]:
    for name, value in exported.env:
        if isinstance(value, str):
            yield f"Environment={quoted(f'{name}={value}', in_command=False)}"
    if exported.secrets:
        yield f"EnvironmentFile={environment_file(exported)}"
    if exported.unset:
        yield f"UnsetEnvironment={' '.join(exported.unset)}"


def _command(exported: Exported) -> str:
    """The command, one flag per line. The first word must be a path."""
    start = list(exported.start)
    if not start[0].startswith("/"):
        start.insert(0, "/usr/bin/env")
    lines = [" ".join(quoted(word, in_command=True) for word in start)]
    lines += [" ".join(map(_word, words)) for words in exported.flag_lines()]
    return " \\\n  ".join(lines)


def _word(word: Word) -> str:
    return f"${{{word.name}}}" if isinstance(word, Secret) else quoted(word, in_command=True)
