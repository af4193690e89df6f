"""Start SGLang servers by forks of one process that has imported SGLang.

    python fork_server.py SOCKET        (in the server's environment; ends with its stdin)

Most of a start on a CPU is imports, in the launcher, the scheduler and the detokenizer. A fork runs
the same `sglang.launch_server` with the caller's arguments, variables, folder, limits and output,
in a separate session. Differences: the imports are done, SGLang's processes are forked instead of
spawned, and variables that SGLang reads at import (`HF_HUB_OFFLINE`, `SGLANG_USE_CPU_ENGINE`) are
those of this process.

`forked_python` writes a program that replaces the interpreter: it passes its arguments on and ends
with the exit code of the server.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import resource
import runpy
import select
import signal
import socket
import sys
import traceback
from pathlib import Path

PRELOADED = (
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.models.registry",
    "sglang.srt.speculative.eagle_worker_v2",
    "sglang.srt.speculative.standalone_worker_v2",
)
LIMITS = ("RLIMIT_AS", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_NPROC")

_CLIENT = """#!{python} -SE
import json, os, resource, signal, socket, sys
if sys.argv[1:3] != ["-m", "sglang.launch_server"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
limits = {{name: resource.getrlimit(getattr(resource, name)) for name in {limits!r}}}
start = {{"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "limits": limits}}
socket.send_fds(connection, [b"0"], [1, 2])
connection.sendall(json.dumps(start).encode() + b"\\n")
code = int(connection.makefile().readline() or "1")
if code < 0:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def forked_python(path: Path, address: Path, python: str) -> Path:
    """Write the program that replaces the interpreter of the server's environment."""
    path.write_text(_CLIENT.format(python=python, address=str(address), limits=LIMITS))
    path.chmod(0o755)
    return path


def main(address: str) -> None:
    for module in PRELOADED:
        importlib.import_module(module)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in readable:
            leave(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            attend(connection)
            leave(0)
        connection.close()


def attend(connection: socket.socket) -> None:
    """Start one server and report its exit code; end it if the caller is gone."""
    _, outputs, _, _ = socket.recv_fds(connection, 1, 2)
    start = json.loads(connection.makefile().readline())
    child = os.fork()
    if child == 0:
        connection.close()
        serve(start, outputs)
        return
    exited = os.pidfd_open(child)
    readable, _, _ = select.select([exited, connection], [], [])
    if exited not in readable:
        end_session(child)
    _, status = os.waitpid(child, 0)
    end_session(child)
    with contextlib.suppress(OSError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def end_session(leader: int) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == leader:
                    os.kill(int(entry.name), signal.SIGKILL)


def serve(start: dict, outputs: list[int]) -> None:
    """Run `-m sglang.launch_server ...` like the interpreter, without the imports."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, descriptor in enumerate(outputs, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(start["env"])
    os.chdir(start["cwd"])
    for name, limit in start["limits"].items():
        resource.setrlimit(getattr(resource, name), limit)
    # SGLang asks for "spawn" (0.5.23), which would import everything anew.
    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.set_start_method = lambda *_, **__: None
    _, module, *arguments = start["argv"]
    sys.argv = [module, *arguments]
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception as error:  # noqa: BLE001 - what the interpreter does with it
        frames = error.__traceback__.tb_next  # without this file's own
        traceback.print_exception(error.with_traceback(frames))
        code = 1
    leave(code)


def leave(code: int) -> None:
    """End a fork at once, because a normal exit would take seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
