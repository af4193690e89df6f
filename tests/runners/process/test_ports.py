"""Ports of launches: none that anything listens on, and none that another tuner has chosen."""

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
    """The one block that can be chosen; nothing of it is in use."""
    first = ports.free_port_block()
    monkeypatch.setattr(ports, "_LOWEST", first)
    monkeypatch.setattr(ports, "_HIGHEST", first + 2 * ports.BLOCK)
    while ports._claimed:
        ports.os.close(ports._claimed.pop())
    return first


def test_a_block_that_another_tuner_has_chosen_is_not_chosen(only_block):
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


def test_one_port_in_use_spoils_its_block(only_block):
    with socket.create_server(("127.0.0.1", only_block + 7)), pytest.raises(ports.NoFreePortError):
        ports.free_port_block()


def test_launch_after_launch_keeps_no_more_than_two_blocks():
    blocks = [ports.free_port_block() for _ in range(5)]
    assert len(set(blocks[-2:])) == 2
    assert len(ports._claimed) == 2
