"""Runs in the server's interpreter: imports what SGLang's launcher does, and waits to be told.

    python -c "$(cat warm_launcher.py)" FD

`FD` is one end of a socket. Once the imports are done it says `{"imported_s": seconds, "at": ...,
"cpu_s": ..., "contexts": ...}`: when, by the clock that all processes share, the processor time
used until then, and the CUDA contexts that it has. A line `{"argv": [...], "environ": {...}}` makes
this process the server, with these variables set (`null`: removed); the end of the socket ends it
at once, so that nothing outlives the tuner. Standard library only.

What SGLang then does is what `python -m MODULE` does: the module runs as `__main__`, and the
schedulers are interpreters of their own that SGLang starts from it (0.5.9 to 0.5.23).
"""

from __future__ import annotations

import contextlib
import ctypes
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
OUR_PLUGIN = "tuner_sglang_plugin"
_NOT_BEGUN = (3, 100)
"""CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NO_DEVICE."""


def _wait_for_command(channel: socket.socket, commands: queue.Queue[dict[str, Any]]) -> None:
    line = b""
    # What it said may not have been read: then a killed tuner's end is a reset.
    with contextlib.suppress(OSError), channel.makefile("rb") as lines:
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
    # The tuner's own changes schedulers alone.
    plugins = importlib.metadata.entry_points(group="sglang.srt.plugins")
    if all(plugin.name == OUR_PLUGIN for plugin in plugins):
        importlib.import_module(HTTP)


def _contexts() -> int | None:
    """CUDA contexts of this process; `None` where the driver does not say. It makes none itself.

    `cuDevicePrimaryCtxGetState` tells of the context that CUDA's runtime, and with it torch, makes
    on a device, `cuCtxGetCurrent` of another one that is in use (CUDA driver API, 12 and 13).
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return 0  # nothing has loaded it
    count = ctypes.c_int()
    if (error := cuda.cuDeviceGetCount(ctypes.byref(count))) in _NOT_BEGUN:
        return 0
    if error:
        return None
    contexts = 0
    for ordinal in range(count.value):
        device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or cuda.cuDevicePrimaryCtxGetState(
            device, ctypes.byref(flags), ctypes.byref(active)
        ):
            return None
        contexts += active.value
    current = ctypes.c_void_p()
    if cuda.cuCtxGetCurrent(ctypes.byref(current)):
        return None
    return contexts or int(current.value is not None)


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
    contexts = _contexts()
    now = time.monotonic()
    told = {
        "imported_s": now - begun,
        "contexts": contexts,
        "at": now,
        "cpu_s": time.process_time(),
    }
    channel.sendall(json.dumps(told).encode() + b"\n")
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
