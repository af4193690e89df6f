"""Connections: TLS, servers that close them, and machines that have no more to give."""

from __future__ import annotations

import asyncio
import errno
import shutil
import ssl
import subprocess
import sys
import textwrap
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import orjson
import pytest

from runners.base import RunnerError
from runners.load.http import connection
from runners.load.http.client import ClientSettings, LoadClient
from runners.load.http.connection import Address, ConnectionLostError, ConnectionPool
from runners.load.http.in_flight import InFlightRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def event(tokens: int) -> bytes:
    meta = {"completion_tokens": tokens, "finish_reason": {"type": "length"}}
    data = b"data: " + orjson.dumps({"text": "x", "output_ids": [1], "meta_info": meta}) + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Server:
    """Answers the n-th request on the m-th connection as `answers(m, n)` says; `None` closes."""

    def __init__(self, answers: Callable[[int, int], bytes | None]) -> None:
        self.answers = answers
        self.requests: list[tuple[int, int]] = []
        self.connections = 0
        self.ended = asyncio.Event()
        """Some client has closed its connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine, asked = self.connections, 0
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                await reader.readexactly(length)
                self.requests.append((mine, asked))
                reply = self.answers(mine, asked)
                if reply is None:
                    return
                writer.write(reply)
                if b"cut" in reply:
                    return
                asked += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended.set()
            writer.close()


@asynccontextmanager
async def serving(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    async with listener:
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


async def ask(pool: ConnectionPool, address: Address) -> bytes:
    body = bytearray()
    assert (
        await pool.exchange(address.request("/", {}, b""), lambda _, raw: body.extend(raw)) == 200
    )
    return bytes(body)


def test_a_connection_that_the_server_closes_as_it_is_used_again_is_replaced():
    server = Server(lambda mine, asked: None if (mine, asked) == (0, 1) else OK)

    async def go():
        async with serving(server) as url:
            pool = ConnectionPool(Address.of(url))
            assert [await ask(pool, Address.of(url)) for _ in range(3)] == [b"ok"] * 3
            await pool.close()

    asyncio.run(go())
    assert server.requests == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_what_has_begun_to_be_answered_is_not_asked_twice():
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut"
    server = Server(lambda _mine, asked: cut if asked else OK)

    async def go():
        async with serving(server) as url:
            pool = ConnectionPool(Address.of(url))
            await ask(pool, Address.of(url))
            with pytest.raises(ConnectionLostError):
                await ask(pool, Address.of(url))
            await pool.close()

    asyncio.run(go())
    assert server.requests == [(0, 0), (0, 1)]


def test_a_connection_that_was_long_idle_is_not_used_again(monkeypatch):
    monkeypatch.setattr(connection, "_KEEPALIVE_S", -1.0)
    server = Server(lambda _mine, _asked: OK)

    async def go():
        async with serving(server) as url:
            pool = ConnectionPool(Address.of(url))
            for _ in range(3):
                await ask(pool, Address.of(url))
            await pool.close()

    asyncio.run(go())
    assert server.requests == [(0, 0), (1, 0), (2, 0)]


def test_a_whole_response_that_nobody_waits_for_any_more_leaves_no_connection_behind():
    server = Server(lambda _mine, _asked: OK)

    async def go():
        async with serving(server) as url:
            pool = ConnectionPool(Address.of(url))
            request = Address.of(url).request("/", {}, b"")

            def leave(_status: int, _raw: bytes) -> None:
                asked.cancel()

            asked = asyncio.ensure_future(pool.exchange(request, leave))
            with pytest.raises(asyncio.CancelledError):
                await asked
            await pool.close()
            async with asyncio.timeout(30):
                await server.ended.wait()

    asyncio.run(go())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and its own certificate for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "made.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", made],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return made, key


def fly_over_tls(certificate) -> InFlightRequest:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    reply = head + event(1) + event(2) + b"0\r\n\r\n"
    flight = InFlightRequest("p", b"{}")

    async def go():
        async with (
            serving(Server(lambda _mine, _asked: reply), context) as url,
            LoadClient(ClientSettings(url, 1, 60.0)) as client,
        ):
            await client.generate(flight)

    asyncio.run(go())
    return flight


def test_streams_over_tls(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    flight = fly_over_tls(certificate)
    assert flight.error is None
    assert flight.tokens == 2


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate):
    with pytest.raises(RunnerError, match="certificate verify failed"):
        fly_over_tls(certificate)


# With few files to open, from a process of its own.
FEW_FILES = """
    import resource, sys
    from runners.base import RunnerError
    from runners.load.prompts.prompts import BuiltInPrompts
    from runners.load.generator import LoadGenerator
    from search_spaces.configuration import Speculation
    from search_spaces.workload import OperatingPoint, Workload

    point = OperatingPoint(64, requests=64)
    load = Workload((("chat", 1.0),), 4, (point,), warmup_requests=0)
    generator = LoadGenerator(sys.argv[1], load, BuiltInPrompts(load.prompts), processes=1)
    generator._prompts.select(64, 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    try:
        generator.measure(point, speculation=Speculation())
    except RunnerError as error:
        print(error.failure.kind, error.failure.fault, error.failure.message)
"""


def test_too_few_files_for_the_load_are_named(server, answer):
    def slow(_n, _body):
        return answer(4, wait_s=0.5)

    server.generate = slow
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FEW_FILES), server.url],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.startswith("too_many_files client ")
    assert "64 connections" in done.stdout
    assert "ulimit -n" in done.stdout


def test_no_local_port_is_named(server, monkeypatch):
    async def refuse(*_: object) -> int:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(ConnectionPool, "exchange", refuse)

    async def go():
        async with LoadClient(ClientSettings(server.url, 1, 60.0)) as client:
            await client.generate(InFlightRequest("p", b"{}"))

    with pytest.raises(RunnerError, match="ip_local_port_range") as caught:
        asyncio.run(go())
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("no_free_port", "client")
