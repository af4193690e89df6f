"""Process trees: all their processes end, and no others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from runners.base import LaunchCommand, RunnerError
from runners.conformance import marked_pids
from runners.process.ports import free_port_block, is_free, listens
from runners.process.processes import MARK, ServerProcess, end_leftover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

SLEEP = "import time; time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


def tree(child: str, *, new_session: bool = False, leader: str = "time.sleep(60)") -> str:
    """A leader that starts `child` and reports when both run."""
    return (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}],"
        f" start_new_session={new_session})\n"
        f"time.sleep(0.3)\nprint('up', flush=True)\n{leader}\n"
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    started: list[ServerProcess] = []

    def run(script: str, *, env: tuple[tuple[str, str], ...] = ()) -> ServerProcess:
        mark = uuid.uuid4().hex
        log = tmp_path / f"{mark}.log"
        command = LaunchCommand((sys.executable, "-c", script), env)
        process = ServerProcess.start(command, mark=mark, port=free_port_block(), log=log)
        started.append(process)
        if "'up'" in script:
            deadline = time.monotonic() + 20
            while "up" not in log.read_text() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert "up" in log.read_text()
        return process

    yield run
    for process in started:
        process.stop(0.0)


def test_launch_leads_its_session_and_has_its_mark(start):
    process = start(tree(SLEEP))
    pid = process.identity.pid
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert abs(psutil.Process(pid).create_time() - process.identity.started) < 0.01
    assert process.environ()[MARK] == process.identity.mark
    assert len(process.members()) == 2
    assert process.identity.host == socket.gethostname()


def test_variables_are_set_and_removed(start, monkeypatch, tmp_path):
    monkeypatch.setenv("T_GONE", "1")
    script = "import os; print(os.environ.get('T_GONE'), os.environ['T_SET'])"
    log = tmp_path / "out.log"
    command = LaunchCommand((sys.executable, "-c", script), (("T_SET", "x"),), ("T_GONE",))
    done = ServerProcess.start(command, mark="m", port=1, log=log)
    while done.poll() is None:
        time.sleep(0.02)
    assert log.read_text().strip() == "None x"


@pytest.mark.parametrize(
    ("child", "new_session", "grace"),
    [
        pytest.param(SLEEP, False, 0.5, id="child"),
        pytest.param(STUBBORN, False, 0.3, id="ignores SIGTERM"),
        pytest.param(STUBBORN, True, 0.3, id="in a session of its own"),
    ],
)
def test_stop_ends_the_whole_tree(start, child, new_session, grace):
    process = start(tree(child, new_session=new_session))
    assert len(marked_pids(process.identity.mark)) == 2
    process.stop(grace)
    assert marked_pids(process.identity.mark) == []
    assert process.poll() is not None
    process.stop(grace)  # idempotent


def test_stop_ends_orphans_of_a_killed_leader(start):
    process = start(tree(STUBBORN))
    os.kill(process.identity.pid, signal.SIGKILL)
    while process.poll() is None:
        time.sleep(0.01)
    assert len(process.members()) == 1, "the orphan is still known"
    process.stop(0.3)
    assert marked_pids(process.identity.mark) == []


def test_sigterm_goes_to_the_leader_only(start, tmp_path):
    told = tmp_path / "told"
    child = (
        "import signal, sys, time, pathlib\n"
        f"def f(*_): pathlib.Path({str(told)!r}).write_text('child'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, f)\ntime.sleep(60)"
    )
    leader = (
        "import signal\n"
        "def end(*_): time.sleep(0.3); child.kill(); child.wait(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('handler', flush=True)\n"
        "time.sleep(60)"
    )
    process = start(tree(child, leader=leader))
    log = tmp_path / f"{process.identity.mark}.log"
    deadline = time.monotonic() + 60
    while "handler" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.stop(60.0)
    assert process.poll() == 0
    assert not told.exists()


def test_stop_ignores_other_processes_of_the_same_name(start):
    other = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        process = start(tree(SLEEP))
        process.stop(0.5)
        assert end_leftover(process.identity) == ()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_leftovers_are_found_by_mark_and_by_the_recorded_leader(start):
    process = start(tree(STUBBORN, new_session=True))
    pids = set(marked_pids(process.identity.mark))
    assert set(end_leftover(process.identity)) == pids
    assert marked_pids(process.identity.mark) == []
    assert end_leftover(process.identity) == ()


def test_reused_pid_is_not_ended(start):
    process = start(tree(SLEEP))
    stale = replace(process.identity, mark="another", started=process.identity.started - 1000)
    assert end_leftover(stale) == ()
    assert len(process.members()) == 2
    without_mark = replace(process.identity, mark="another")
    assert set(end_leftover(without_mark)) >= {process.identity.pid}


@pytest.mark.parametrize("end", [lambda p: p.kill(), lambda p: p.stop(0.0)], ids=["kill", "stop"])
def test_session_of_a_reused_leader_pid_is_not_ended(start, end):
    stranger = start(tree(SLEEP))
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    ours = replace(stranger.identity, mark="ours", started=stranger.identity.started - 1000)
    process = ServerProcess(done, ours)
    assert process.members() == []
    assert end(process) in {None, ()}
    time.sleep(0.1)
    assert stranger.poll() is None
    assert len(stranger.members()) == 2


def test_processes_forked_during_kill_are_killed(start, monkeypatch):
    """A process is forked outside the group while the others are being killed."""
    process = start(tree(STUBBORN, new_session=True))
    kill, missed = psutil.Process.kill, []

    def miss_once(found: psutil.Process) -> None:
        if missed:
            kill(found)
        missed.append(found.pid)

    monkeypatch.setattr(psutil.Process, "kill", miss_once)
    process.stop(0.0, kill_wait_s=3.0)
    assert marked_pids(process.identity.mark) == []


@pytest.mark.parametrize(
    "end",
    [lambda p: p.stop(0.0, kill_wait_s=0.1), lambda p: end_leftover(p.identity, wait_s=0.1)],
    ids=["stop", "end_leftover"],
)
def test_surviving_process_is_an_error(start, monkeypatch, end):
    process = start(tree(STUBBORN, new_session=True))
    pids = marked_pids(process.identity.mark)
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "kill", lambda _self: None)
        with pytest.raises(RunnerError) as caught:
            end(process)
    failure = caught.value.failure
    assert (failure.kind, failure.phase, failure.fault) == ("process_left", "stop", "host")
    left = end_leftover(process.identity)
    assert left
    assert set(left) <= set(pids)
    assert all(str(pid) in failure.message for pid in left)


def test_leftovers_of_another_machine_are_skipped(start):
    process = start(tree(SLEEP))
    assert end_leftover(replace(process.identity, host="elsewhere")) == ()
    assert len(process.members()) == 2


def test_log_has_stdout_and_stderr(start, tmp_path):
    log = tmp_path / "deep" / "er" / "server.log"
    script = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    command = LaunchCommand((sys.executable, "-c", script))
    process = ServerProcess.start(command, mark="m", port=1, log=log)
    while process.poll() is None:
        time.sleep(0.02)
    assert log.read_text().split() == ["out", "err"]


def test_port_owner_is_the_listening_process(start):
    port = free_port_block()
    script = (
        "import socket, time\n"
        f"s = socket.create_server(('127.0.0.1', {port}))\nprint('up', flush=True)\n"
        "time.sleep(60)"
    )
    ours = start(script)
    other = start(tree(SLEEP))
    assert not is_free(port)
    assert listens(ours.members(), port)
    assert not listens(other.members(), port)
    assert not listens(ours.members(), port + 1)
    ours.stop(0.5)
    assert is_free(port)


def test_port_blocks_are_free_and_disjoint():
    firsts = {free_port_block() for _ in range(20)}
    assert len(firsts) > 1
    assert all(first % 10 == 0 for first in firsts)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not is_free(taken.getsockname()[1])


def test_members_ignore_processes_that_end_meanwhile(start):
    process = start("import sys; sys.exit(3)")
    while process.poll() is None:
        time.sleep(0.01)
    assert process.poll() == 3
    assert process.members() == []
    assert process.environ() == {}
