"""The tap of the agreement benchmark, between our own client and a scripted server."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import warnings

import httpx
import pytest

from benchmarks.sglang_bench import order_of_sending
from benchmarks.tap import Tap
from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import Prompt, PromptSource
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

pytestmark = pytest.mark.slow

STANDALONE = Speculation("STANDALONE", 3, 2, 6)
POINT = OperatingPoint(2)
LOAD = Workload((("chat", 1.0),), 32, (POINT,), warmup_requests=2)


class Questions(PromptSource):
    """Prompts whose ids are what they say."""

    def select(self, count, seed):
        return tuple(Prompt(text, text) for text in (f"{n:03d}? {999 - n}!" for n in range(count)))


def port_of(server):
    return int(server.url.rpartition(":")[2])


@pytest.mark.parametrize("delay_s", [0.0, 0.05])
def test_it_sees_what_the_client_sees(server, recorded, delay_s):
    server.generate = lambda _n, _b: recorded("0.5.23-cpu/standalone_generate_stream.sse.txt")
    with Tap(port_of(server), delay_s=delay_s) as tap:
        measured = LoadGenerator(tap.url, LOAD, Questions(), seed=0).measure(
            POINT, speculation=STANDALONE
        )
        seen = {sample.prompt: sample for sample in tap.samples()}
        assert tap.accept_length() == measured.accept_length == pytest.approx(1 + 17 / 15)
    # The warm-up came before the last flush, the ramp after it.
    ramp = {prompt.id for prompt in Questions().select(16 + 2, 0)[16:]}
    assert set(seen) == {sample.prompt for sample in measured.samples} | ramp
    for ours in measured.samples:
        other = seen[ours.prompt]
        for name in ("completion_tokens", "prompt_tokens", "verify_calls", "correct_drafts",
                     "histogram", "error"):  # fmt: skip
            assert getattr(other, name) == getattr(ours, name)
        # One clock: the client sends before the tap hears it, and hears the end after it.
        assert delay_s <= other.ttft_s <= ours.ttft_s
        assert other.e2e_s <= ours.e2e_s


def test_whatever_else_is_asked_passes_through(server):
    server.server_info = {"model_path": "m", "version": "0.5.23"}
    with Tap(port_of(server)) as tap:
        with httpx.Client(base_url=tap.url, trust_env=False, timeout=30) as client:
            for _ in range(2):  # on one connection
                assert client.get("/server_info").json() == server.server_info
            assert client.post("/flush_cache").status_code == 200
        assert tap.info_s > 0
        assert tap.flights == []
        url = tap.url
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_a_client_that_leaves_leaves_nothing_behind(server, answer):
    server.generate = lambda _n, _b: answer(4, wait_s=30.0)
    with Tap(port_of(server)) as tap:
        address = ("127.0.0.1", int(tap.url.rpartition(":")[2]))
        with socket.create_connection(address) as client:
            client.sendall(b'POST /generate HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"text": "a", ')
            while not tap.flights:
                asyncio.run(asyncio.sleep(0.01))
        assert tap.flights[0].answer is None


def test_a_tap_that_ends_while_its_clients_leave_leaves_no_connection_open(server, answer):
    # An open one is told when it is collected, in whatever test runs then.
    server.generate = lambda _n, _b: answer(4, wait_s=30.0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        leave_twenty_taps(server)
        gc.collect()
    assert not [str(one.message) for one in told]


def leave_twenty_taps(server):
    for _ in range(20):
        with Tap(port_of(server)) as tap:
            address = ("127.0.0.1", int(tap.url.rpartition(":")[2]))
            clients = [socket.create_connection(address) for _ in range(5)]
            for client in clients:
                client.sendall(b'POST /generate HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"te')
            while len(tap.flights) < len(clients):
                time.sleep(0.001)
            for client in clients:
                client.close()


def test_the_order_of_the_other_client_is_a_shuffle_of_all_prompts():
    texts = [str(n) for n in range(50)]
    assert order_of_sending(texts) == order_of_sending(texts) != texts
    assert sorted(order_of_sending(texts)) == sorted(texts)
    assert order_of_sending(texts, 1) != order_of_sending(texts)
