"""Flush and abort on the real server, idle and busy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from runners.base import RunnerError
from runners.load.http.client import ClientSettings, LoadClient
from runners.load.http.generate import GenerateEndpoint
from runners.load.http.in_flight import InFlightRequest
from runners.load.prompts.prompts import Prompt
from search_spaces.workload import OperatingPoint, Workload

from .servers import every_kind, generation, metric, wait_until_it_runs

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]

LONG = 1800
"""Tokens of an answer that outlasts the test: 10 s and more on a quiet machine."""


def settings(server) -> ClientSettings:
    return ClientSettings(server.url, 1, 300)


def flight(tokens: int) -> InFlightRequest:
    workload = Workload((("chat", 1.0),), tokens, (OperatingPoint(1),))
    return InFlightRequest(
        "one", GenerateEndpoint().body(Prompt("one", "Once upon a time"), workload)
    )


@contextlib.contextmanager
def busy(server):
    """Run a long request; its answer is in the list afterwards."""
    answers = []
    with ThreadPoolExecutor(1) as pool:
        body = generation("Once upon a time", LONG)
        request = pool.submit(server.post, "/generate", body, timeout=300)
        wait_until_it_runs(server)
        try:
            yield answers
        finally:
            server.post("/abort_request", {"rid": "", "abort_all": True})
            answers.append(request.result(300).json())


@every_kind
def test_idle_server_is_flushed(server):
    server.flush()

    async def flush() -> None:
        async with LoadClient(settings(server)) as client:
            await client.flush_cache(timeout_s=60)

    asyncio.run(flush())


@pytest.mark.kind("plain")
def test_flush_empties_the_prefix_cache(server):
    text = "A prompt that is asked twice. " * 8
    server.flush()
    server.generate(text, 4)
    assert server.generate(text, 4)["meta_info"]["cached_tokens"] > 0
    server.flush()
    assert server.generate(text, 4)["meta_info"]["cached_tokens"] == 0


@pytest.mark.kind("plain")
def test_busy_server_refuses_the_flush(server):
    async def flush() -> None:
        async with LoadClient(settings(server)) as client:
            await client.flush_cache(timeout_s=0.5)

    with busy(server) as answers:
        refused = server.post("/flush_cache")
        assert refused.status_code == httpx.codes.BAD_REQUEST
        assert "Flush cache failed" in refused.text
        with pytest.raises(RunnerError) as caught:
            asyncio.run(flush())
        failure = caught.value.failure
        assert (failure.kind, failure.fault) == ("not_idle", "configuration")
        assert "another client uses the server" in failure.message
        assert server.get("/health").status_code == httpx.codes.OK
        assert server.info()["internal_states"]
    (answer,) = answers
    assert answer["meta_info"]["finish_reason"]["type"] == "abort"
    server.flush()


@every_kind
def test_abort_fails_the_request_and_leaves_the_server_idle(server):
    async def abort() -> InFlightRequest:
        long = flight(LONG)
        async with LoadClient(settings(server)) as client:
            request = asyncio.create_task(client.generate(long))
            while long.tokens == 0:
                await asyncio.sleep(0.01)
                assert not request.done()
            # The abort has a separate connection.
            await client.abort_all()
            await request
            await client.flush_cache(timeout_s=60)
        return long

    long = asyncio.run(abort())
    assert 0 < long.tokens < LONG
    assert "aborted by the server" in long.error
    assert not long.timed_out


@pytest.mark.kind("plain")
def test_closed_connection_ends_the_request(server):
    """No abort request is needed."""
    body = generation("Once upon a time", LONG) | {"stream": True}
    before = metric(server, "generation_tokens_total")
    with httpx.stream(
        "POST", f"{server.url}/generate", json=body, timeout=120, trust_env=False
    ) as stream:
        next(stream.iter_raw())
    server.flush()
    assert metric(server, "generation_tokens_total") - before < LONG


@pytest.mark.kind("standalone")
def test_interrupt_in_a_window_leaves_the_server_idle(server):
    """Ctrl-C aborts requests in flight before the exception passes."""

    def interrupt() -> None:
        wait_until_it_runs(server)
        os.kill(os.getpid(), signal.SIGINT)

    point = OperatingPoint(4, requests=64)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        server.session.measure(point)
    thread.join()
    server.flush()
    assert server.generate("still there", 4)["meta_info"]["completion_tokens"] == 4
