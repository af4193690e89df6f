"""Faults of the process: an orphan on the port, and a supervisor that restarts the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from runners.simulated_server.faults.misbehaviour import Misbehaviour

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType

    from runners.simulated_server.launch.log import ServerLog

LIFE = "TUNER_SIM_LIFE"
"""Variable that a supervisor sets: number of the server process, from 1."""

_ORPHAN_S = 600
_ORPHAN = f"import time; time.sleep({_ORPHAN_S})"
"""The orphan holds its sockets, and ends after 600 s."""

_MARK = "TUNER_LAUNCH"


def leave_orphan(fault: Misbehaviour, sockets: Iterable[int]) -> int:
    """Start a child in a new session that keeps the listening sockets open; return its pid.

    The child outlives the server, like SGLang's schedulers in sglang#31645. Clients that connect to
    the port get no answer.
    """
    environment = dict(os.environ)
    if not fault.marked:
        environment.pop(_MARK, None)
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _ORPHAN],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=tuple(sockets),
    )
    return child.pid


def faults_of_process(faults: Sequence[Misbehaviour]) -> tuple[Misbehaviour, ...]:
    """Return the faults of this process, which a supervisor may have started.

    The first server of a `restart` crashes under load, or while idle if the fault has a delay.
    Later servers do not crash.
    """
    first = os.environ.get(LIFE) == "1"
    found: list[Misbehaviour] = []
    for fault in faults:
        if fault.kind != "restart":
            found.append(fault)
        elif first:
            change = {
                "kind": "exit",
                "phase": "idle" if fault.delay_s else "serving",
                "cause": "killed",
            }
            found.append(Misbehaviour.model_validate(fault.model_dump() | change))
    return tuple(found)


def supervises(faults: Sequence[Misbehaviour]) -> bool:
    """Return whether this process is the supervisor."""
    return LIFE not in os.environ and any(fault.kind == "restart" for fault in faults)


def supervise(argv: Sequence[str], log: ServerLog) -> int:
    """Run the server as a child and restart it after a crash; return the last exit status.

    systemd and the restart policies of containers do the same, with equal flags and port.
    """
    signals: list[int] = []
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        signals.append(number)
        for child in children:
            child.send_signal(number)  # no effect on a child that has ended

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    while True:
        began = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", "runners.simulated_server", *argv],
            env=os.environ | {LIFE: str(len(children) + 1)},
        )
        children.append(child)
        if signals:
            child.terminate()
        status = child.wait()
        # A server that repeatedly ends at once cannot run.
        if signals or (time.monotonic() - began < 0.5 and len(children) > 3):
            return status
        log.raw(f"supervisor: the server ended with status {status}; starting it again")
