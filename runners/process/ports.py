"""Ports: fresh ones for every launch, and whose a listening one is."""

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
"""Ports kept free from the HTTP port on: SGLang derives further ones from `--port`."""

_LOWEST, _HIGHEST = 20000, 32000
"""Below Linux's ephemeral range (32768), so no outgoing connection takes one in between."""


_claimed: deque[int] = deque()
"""Sockets that hold this process's latest blocks, the one that is served and the one before."""


class NoFreePortError(Exception):
    """No block of free ports was found."""


def free_port_block(size: int = BLOCK, attempts: int = 200) -> int:
    """The first port of a block of `size` ports on which nothing listens.

    Blocks are drawn at random, so that launches in a row do not meet on one port: after a kill, a
    relaunch on the same port has been seen to serve for a while and then hang (sglang#22779).
    Another tuner on this machine does not get the same one: a server listens long after its port
    was chosen.

    Raises:
        NoFreePortError: All that were tried are in use.
    """
    choose = random.SystemRandom()
    for _ in range(attempts):
        first = choose.randrange(_LOWEST, _HIGHEST - size, size)
        if all(is_free(port) for port in range(first, first + size)) and _claim(first):
            return first
    raise NoFreePortError(
        f"no {size} free ports in a row among {attempts} blocks of {_LOWEST}-{_HIGHEST}"
    )


def _claim(port: int) -> bool:
    """Takes the UDP port of that number, which no server wants, until this process ends.

    Blocks begin at multiples of their size, so that one port stands for its block.
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
    """Whether a server could listen on `port` at any address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a closed connection of an earlier server in TIME_WAIT is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def answers(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Whether something accepts connections on a port, on this machine or another."""
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
