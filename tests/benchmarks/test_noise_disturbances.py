"""What runs beside a block: it runs there, and nowhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from benchmarks.noise.disturbances import (
    BUSY_CORE,
    DISTURBANCES,
    IDLE_SERVER,
    NoDisturbanceError,
    PausedServer,
    made,
    pinned,
    repeated,
)
from benchmarks.noise.unstreamed import WholeEndpoint, WholeReader
from runners.load.http.endpoint import MalformedStreamError
from runners.load.prompts.prompts import Prompt
from search_spaces.workload import OperatingPoint, Workload

pytestmark = pytest.mark.slow

DEADLINE_S = 60


def until(true):
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_paused_server_runs_only_while_it_is_awake():
    server = subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300; wait"], start_new_session=True)
    try:
        leader = psutil.Process(server.pid)
        # A shell that waits for its child to begin the command (vfork) cannot be stopped.
        until(lambda: [child.name() for child in leader.children()] == ["sleep", "sleep"])
        tree = [leader, *leader.children()]

        def stopped():
            return {process.status() == psutil.STATUS_STOPPED for process in tree}

        paused = PausedServer(server.pid)
        paused.pause()
        until(lambda: stopped() == {True})
        with paused.awake():
            until(lambda: stopped() == {False})
        until(lambda: stopped() == {True})
        with pytest.raises(KeyError), paused.awake():
            raise KeyError
        until(lambda: stopped() == {True})
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_a_repeated_command_runs_again_and_again_and_ends_with_all_it_started(tmp_path):
    runs = tmp_path / "runs"
    script = f"echo $$ >> {runs}; sleep 0.05 & sleep 0.05; wait"
    with repeated(("sh", "-c", script)):
        until(lambda: runs.exists() and len(runs.read_text().split()) > 3)
    groups = {int(pid) for pid in runs.read_text().split()}
    assert not [p for p in psutil.pids() if p in groups]
    count = len(groups)
    time.sleep(0.2)
    assert len(runs.read_text().split()) == count


def test_what_fails_is_no_disturbance(tmp_path):
    ran = tmp_path / "ran"

    def disturb():
        with repeated(("sh", "-c", f"touch {ran}; exit 3")):
            until(ran.exists)
            time.sleep(1)

    with pytest.raises(NoDisturbanceError, match=r"exit 3.{1,2} ended with 3"):
        disturb()


def test_a_busy_core_is_one_process_that_uses_all_its_time():
    ways = made((BUSY_CORE,), imports=(), environment=None, second=None)
    me = psutil.Process()
    with ways[BUSY_CORE]():
        (busy,) = (p for p in me.children() if sys.executable in p.cmdline()[:1])
        until(lambda: busy.cpu_times().user > 0.2)
    assert not busy.is_running()


def test_the_client_is_tied_to_one_core_and_let_go():
    before = os.sched_getaffinity(0)
    with pinned():
        assert os.sched_getaffinity(0) == {max(before)}
    assert os.sched_getaffinity(0) == before


def test_all_that_is_offered_can_be_made():
    second = PausedServer(0)
    ways = made(tuple(DISTURBANCES), imports=("true",), environment={}, second=second)
    assert set(ways) == set(DISTURBANCES)
    assert ways[IDLE_SERVER] == second.awake


ANSWER = (
    b'{"text": "\\"completion_tokens\\": 99", "output_ids": [5, 6], "meta_info": {"finish_reason": '
    b'{"type": "length"}, "prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 0}}'
)


@pytest.mark.parametrize("cut", [1, 40, 120, len(ANSWER)])
def test_an_answer_in_one_piece_counts_when_it_is_whole(cut):
    reader = WholeReader()
    pieces = [ANSWER[at : at + cut] for at in range(0, len(ANSWER), cut)]
    counts = [reader.feed(piece) for piece in pieces]
    assert counts[-1] == 2
    assert set(counts) <= {None, 2}
    assert counts[: 100 // cut] == [None] * min(100 // cut, len(pieces) - 1)
    assert (reader.answer().completion_tokens, reader.answer().error) == (2, None)


def test_a_broken_answer_is_an_error():
    for body in (b'{"text": ', b"[]", b""):
        reader = WholeReader()
        assert reader.feed(body) is None
        with pytest.raises(MalformedStreamError):
            reader.answer()


def test_the_same_is_asked_for_without_a_stream():
    workload = Workload((("chat", 1.0),), 7, (OperatingPoint(1),))
    body = WholeEndpoint().body(Prompt("p", "hello"), workload)
    assert b'"stream":false' in body
    assert b'"max_new_tokens":7' in body
