"""Choose free ports for launches, and find the owner of a listening port."""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK = 10
"""Ports of a launch, because SGLang derives more ports from `--port`."""

_LOWEST, _HIGHEST = 20000, 32000
"""Below Linux's ephemeral range (32768), so that outgoing connections do not take these ports."""


_claimed: deque[int] = deque()
"""Sockets that reserve the blocks of this process's last two launches."""


class NoFreePortError(Exception):
    """No block of ports is free."""


def free_port_block(size: int = BLOCK, attempts: int = 200) -> int:
    """Reserve a block of `size` free ports, and return its first port.

    Blocks are random, because a relaunch on the port of a killed server can hang after a while
    (sglang#22779). The reservation keeps other tuners away until the server listens.

    Raises:
        NoFreePortError: All tried blocks are in use.
    """
    choose = random.SystemRandom()
    for _ in range(attempts):
        first = choose.randrange(_LOWEST, _HIGHEST - size, size)
        if all(is_free(port) for port in range(first, first + size)) and _claim(first):
            return first
    raise NoFreePortError(
        f"no {size} consecutive ports are free in {attempts} random blocks of {_LOWEST}-{_HIGHEST}"
    )


def _claim(port: int) -> bool:
    """Bind the UDP port of this number as a reservation; servers use TCP only.

    Blocks start at multiples of their size, so that their first port identifies them.
    """
    claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        claim.bind(("127.0.0.1", port))
    except OSError:
        claim.close()
        return False
    _claimed.append(claim.detach())
    if len(_claimed) > 2:
        os.close(_claimed.popleft())
    return True


def is_free(port: int) -> bool:
    """Whether a server can listen on `port` at all addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do, so that connections in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def answers(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Whether a host accepts connections on a port."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def listens(processes: Iterable[psutil.Process], port: int) -> bool:
    """Whether one of `processes` listens on `port`."""
    for process in processes:
        try:
            connections = process.net_connections(kind="tcp")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections):
            return True
    return False
