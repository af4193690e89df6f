"""Misbehaviours of the process: an orphan that holds the port, a supervisor that hides a death."""

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
"""Set by a supervisor: which of its servers a process is, from 1."""

_ORPHAN_S = 600
_ORPHAN = f"import time; time.sleep({_ORPHAN_S})"
"""Holds what it was given; ends by itself, should nobody find it."""

_MARK = "TUNER_LAUNCH"


def leave_orphan(trouble: Misbehaviour, sockets: Iterable[int]) -> int:
    """Starts a child in a session of its own that keeps the listening sockets open; its pid.

    It outlives the server, with init as its parent then, as SGLang's schedulers have been seen to
    (sglang#31645), and whoever connects to the port waits for ever.
    """
    environment = dict(os.environ)
    if not trouble.marked:
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


def lives(troubles: Sequence[Misbehaviour]) -> tuple[Misbehaviour, ...]:
    """What goes wrong in this process, if a supervisor may have started it.

    The first server of a `restart` dies under load, or of idleness if a delay is given; those
    after it do not.
    """
    first = os.environ.get(LIFE) == "1"
    found: list[Misbehaviour] = []
    for trouble in troubles:
        if trouble.kind != "restart":
            found.append(trouble)
        elif first:
            change = {
                "kind": "exit",
                "phase": "idle" if trouble.delay_s else "serving",
                "cause": "killed",
            }
            found.append(Misbehaviour.model_validate(trouble.model_dump() | change))
    return tuple(found)


def supervises(troubles: Sequence[Misbehaviour]) -> bool:
    """Whether this process is to be a supervisor."""
    return LIFE not in os.environ and any(trouble.kind == "restart" for trouble in troubles)


def supervise(argv: Sequence[str], log: ServerLog) -> int:
    """Runs the server as a child, and a new one whenever it dies; returns the last exit status.

    As systemd or a container's restart policy does: same flags, same port, nobody is told.
    """
    told: list[int] = []
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        for child in children:
            child.send_signal(number)  # nothing, for one that is reaped

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    while True:
        began = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", "runners.simulated_server", *argv],
            env=os.environ | {LIFE: str(len(children) + 1)},
        )
        children.append(child)
        if told:
            child.terminate()
        status = child.wait()
        # One that ends at once, again and again, cannot run at all.
        if told or (time.monotonic() - began < 0.5 and len(children) > 3):
            return status
        log.raw(f"supervisor: the server ended with status {status}; starting it again")
