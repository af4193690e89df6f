"""Ends and hangs of a real server, and the reported failures.

Each test harms its server, so these run last of their kind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from runners.base import RunnerError
from runners.conformance import marked_pids
from runners.load.running_server import bench
from runners.load.window.watches import ServerIdentityWatch
from runners.process.ports import is_free
from runners.process.processes import end_leftover
from runners.server_info import read_server_info, refuse_unready
from search_spaces.workload import OperatingPoint, Workload

from .servers import HEALTH_TIMEOUT_S, generation, wait_until_it_runs

pytestmark = [pytest.mark.sglang, pytest.mark.harms, pytest.mark.timeout(600)]

SIGKILLED = -9
"""137 in a shell."""

LONG = Workload((("chat", 1.0),), 900, (OperatingPoint(concurrency=2),), requests=2)


def process_of(server, name: str) -> psutil.Process:
    (found,) = (
        process
        for process in map(psutil.Process, marked_pids(server.identity.mark))
        if process.name() == name
    )
    return found


@contextlib.contextmanager
def while_it_serves(server, act):
    """Call `act` in a thread as soon as a request runs."""

    def wait_and_act() -> None:
        wait_until_it_runs(server)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def exit_code(server) -> int:
    deadline = time.monotonic() + 120
    while (code := server.process.poll()) is None:
        assert time.monotonic() < deadline, "the server does not end"
        time.sleep(0.1)
    return code


@pytest.mark.kind("plain")
def test_sigterm_ends_an_idle_server_with_code_0(live, server):
    server.session.close()
    live.discard()
    assert exit_code(server) == 0
    assert marked_pids(server.identity.mark) == []
    assert is_free(server.port)
    assert "crashed" not in server.log.read_text(), "SIGTERM is not a crash"


@pytest.mark.kind("eagle3")
def test_sigterm_lets_a_busy_server_answer_first(live, server):
    with ThreadPoolExecutor(1) as pool:
        body = generation("Once upon a time", 400)
        request = pool.submit(server.post, "/generate", body, timeout=300)
        wait_until_it_runs(server)
        os.kill(server.pid, signal.SIGTERM)
        answer = request.result(300).json()
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 400}
    # The server ended with code 0, but not by the tuner.
    assert exit_code(server) == 0
    with pytest.raises(RunnerError) as caught:
        server.session.measure(OperatingPoint(1, requests=4))
    live.discard()
    failure = caught.value.failure
    assert (failure.kind, failure.fault) == ("server_ended", "host")
    assert marked_pids(server.identity.mark) == []


@pytest.mark.kind("standalone")
def test_killed_scheduler_while_serving(live, server):
    """SGLang then kills its process group: exit code 137 does not mean out of memory."""
    with (
        while_it_serves(server, lambda: process_of(server, "sglang::scheduler").kill()),
        pytest.raises(RunnerError) as caught,
    ):
        server.session.measure(OperatingPoint(4, requests=64))
    failure = caught.value.failure
    assert exit_code(server) == SIGKILLED
    log = server.log.read_text()
    assert "crashed with exit code -9" in log
    assert (failure.kind, failure.phase, failure.fault) == ("scheduler_killed", "load", "host")
    live.discard()
    assert marked_pids(server.identity.mark) == []
    assert is_free(server.port)


@pytest.mark.kind("ngram")
def test_suspended_scheduler_is_detected(live, server):
    """The process lives and listens but does not answer; every watch reports it."""
    scheduler = process_of(server, "sglang::scheduler")
    with while_it_serves(server, scheduler.suspend), pytest.raises(RunnerError) as caught:
        bench(server.url, LONG, LONG.points[0], stall_timeout_s=5)
    assert caught.value.failure.kind == "stall"
    # The HTTP process answers `/metrics`; requests to the scheduler hang.
    assert server.get("/metrics").status_code == httpx.codes.OK
    with pytest.raises(RunnerError) as caught:
        read_server_info(server.url, timeout_s=2)
    assert caught.value.failure.kind == "server_hung"
    watch = ServerIdentityWatch(server.url, timeout_s=2)
    watch.begin()
    (reason,) = watch.end()
    assert reason.startswith("server_unreadable:")
    begin = time.monotonic()
    with pytest.raises(RunnerError) as caught:
        refuse_unready(server.url, timeout_s=60)
    assert (caught.value.failure.kind, "HTTP 503" in str(caught.value)) == ("not_ready", True)
    assert time.monotonic() - begin >= float(HEALTH_TIMEOUT_S) - 1
    # After resuming, the server works as before.
    scheduler.resume()
    deadline = time.monotonic() + 120
    while server.get("/health").status_code != httpx.codes.OK:
        assert time.monotonic() < deadline
    server.flush()
    assert server.generate("still there", 4)["meta_info"]["completion_tokens"] == 4
    live.discard()
    assert marked_pids(server.identity.mark) == []


@pytest.mark.sglang_long
@pytest.mark.kind("ngram")
def test_suspended_server_is_ended(live, server):
    """This takes the whole grace period: SGLang waits 15 s for its scheduler (0.5.23)."""
    process_of(server, "sglang::scheduler").suspend()
    server.session.close()
    live.discard()
    assert marked_pids(server.identity.mark) == []
    assert is_free(server.port)


@pytest.mark.kind("simulated_acceptance")
def test_children_of_a_killed_leader_are_ended(live, server):
    """They are found by the mark of the launch, not by names or parents."""
    others = set(marked_pids(server.identity.mark)) - {server.pid}
    assert len(others) >= 2, "scheduler and detokenizer"
    os.kill(server.pid, signal.SIGKILL)
    assert exit_code(server) == SIGKILLED
    assert set(end_leftover(server.identity)) <= others
    assert marked_pids(server.identity.mark) == []
    live.discard()
    assert is_free(server.port)
