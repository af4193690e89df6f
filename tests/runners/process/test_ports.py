"""Ports of launches: free, and not reserved by another tuner."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from runners.process import ports

CHOOSE = """
import sys
from runners.process import ports
ports._LOWEST, ports._HIGHEST = int(sys.argv[1]), int(sys.argv[1]) + 2 * ports.BLOCK
print(ports.free_port_block(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def only_block(monkeypatch):
    """The only block that can be chosen; all its ports are free."""
    first = ports.free_port_block()
    monkeypatch.setattr(ports, "_LOWEST", first)
    monkeypatch.setattr(ports, "_HIGHEST", first + 2 * ports.BLOCK)
    while ports._claimed:
        ports.os.close(ports._claimed.pop())
    return first


def test_port_block_of_another_tuner_is_skipped(only_block):
    other = subprocess.Popen(
        [sys.executable, "-c", CHOOSE, str(only_block)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert int(other.stdout.readline()) == only_block
        with pytest.raises(ports.NoFreePortError, match="no 10 consecutive ports are free"):
            ports.free_port_block()
        other.stdin.close()
    assert ports.free_port_block() == only_block


def test_port_block_with_one_busy_port_is_skipped(only_block):
    with socket.create_server(("127.0.0.1", only_block + 7)), pytest.raises(ports.NoFreePortError):
        ports.free_port_block()


def test_process_keeps_two_port_blocks_at_most():
    blocks = [ports.free_port_block() for _ in range(5)]
    assert len(set(blocks[-2:])) == 2
    assert len(ports._claimed) == 2
