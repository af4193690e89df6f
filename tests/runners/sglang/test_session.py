"""HTTP calls of a session, to a server that closes idle connections at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from runners.sglang.session import ServerClient
from search_spaces.configuration import Setting

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 6\r\n\r\n[true]"


def serve(listener: socket.socket) -> None:
    """Answer the first request of a connection, and close it at the second one."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(ANSWER)
            connection.recv(65536)


@pytest.fixture
def base_url():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=5)


def test_connection_closed_between_calls_is_no_crash(base_url):
    with contextlib.closing(ServerClient(base_url)) as client:
        assert client.switch(Setting(2), 7) is None
        assert client.switch(Setting(3, 6), 7) is None
        assert client.healthy(5.0)
