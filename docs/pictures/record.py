"""Records a command's real terminal output as an SVG picture, for the README.

Needs TUNER_STORAGE where the database is not ./tuner.db:

    python docs/pictures/record.py docs/pictures/demo.svg -- tuner show --study kimi-demo
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 132
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def record(picture: Path, command: list[str]) -> int:
    """Runs `command` in a terminal of its own and draws what it printed."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
        os.execvp(command[0], command)  # noqa: S606 - the command is the user's own
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    printed = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the terminal is gone: the command has ended
            break
        if not chunk:
            break
        printed += chunk
    _, status = os.waitpid(pid, 0)
    text = printed.decode("utf-8", "replace").replace("\r\n", "\n")
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(text))
    shown = " ".join(["tuner", *command[1:]] if command[0].endswith("tuner") else command)
    # A reader's own monospaced font will do: a picture should fetch nothing.
    picture.write_text(FONT.sub("", console.export_svg(title=f"$ {shown}")))
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    target, dashes, *words = sys.argv[1:]
    if dashes != "--" or not words:
        sys.exit(__doc__)
    sys.exit(record(Path(target), words))
