"""Runs in the server's interpreter: imports what SGLang's launcher does, and waits to be told.

    python -c "$(cat warm_launcher.py)" FD

`FD` is one end of a socket. It says `{"imported_s": ...}` once the imports are done; a line
`{"argv": [...], "environ": {...}}` makes this process the server, with these variables set (`null`:
removed); the end of the socket ends it at once, so that nothing outlives the tuner. Standard
library only.

What SGLang then does is what `python -m MODULE` does: the module runs as `__main__`, and the
schedulers are interpreters of their own that SGLang starts from it (0.5.9 to 0.5.23).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import queue
import runpy
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

MODULE = "sglang.launch_server"
TOP = ("sglang.srt.server_args", "sglang.srt.plugins", "sglang.srt.utils.common")
"""What the launcher imports before anything else (0.5.17, 0.5.23); 0.5.9 has no plugins."""
HTTP = "sglang.srt.entrypoints.http_server"
"""What it imports once its arguments are read."""


def _wait_for_command(channel: socket.socket, commands: queue.Queue[dict[str, Any]]) -> None:
    with channel.makefile("rb") as lines:
        line = lines.readline()
    if not line.endswith(b"\n"):
        os._exit(0)  # the tuner is gone, or has no use for this
    commands.put(json.loads(line))


def _import() -> None:
    for name in TOP:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    # Plugins take effect on what is imported after them: then the order is left to the launcher.
    if not importlib.metadata.entry_points(group="sglang.srt.plugins"):
        importlib.import_module(HTTP)


def main() -> None:
    """Imports, says so, waits, and becomes the server."""
    begun = time.monotonic()
    channel = socket.socket(fileno=int(sys.argv[1]))
    commands: queue.Queue[dict[str, Any]] = queue.Queue()
    waiting = threading.Thread(target=_wait_for_command, args=(channel, commands), daemon=True)
    waiting.start()
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd())  # as `-m` has it
    _import()
    channel.sendall(json.dumps({"imported_s": time.monotonic() - begun}).encode() + b"\n")
    command = commands.get()
    waiting.join()
    channel.close()
    for name, value in command["environ"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.argv = [MODULE, *command["argv"]]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
