"""What a killed run left is ended, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from results.records import Launch, LaunchIntent, LaunchState, ProcessIdentity
from runners.process.processes import MARK, end_leftover
from search_spaces.configuration import Configuration
from tuner.loop.leftovers import log_digest, seconds_seen

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
def bystander():
    """Starts processes of somebody else, in sessions of their own; they end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(mark: str | None = None) -> tuple[subprocess.Popen[bytes], float]:
        env = {name: value for name, value in os.environ.items() if name != MARK}
        if mark is not None:
            env[MARK] = mark
        process = subprocess.Popen(SLEEP, env=env, start_new_session=True)
        started.append(process)
        return process, psutil.Process(process.pid).create_time()

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_pid_that_was_given_to_another_process_is_left_alone(bystander):
    process, born = bystander()
    # The same pid, but the leader that was recorded began a minute before.
    assert end_leftover(ProcessIdentity(process.pid, born - 60.0, "mark-a", 1)) == ()
    assert process.poll() is None


def test_a_process_with_another_launchs_mark_is_left_alone(bystander):
    other, born = bystander("mark-b")
    assert end_leftover(ProcessIdentity(other.pid, born - 60.0, "mark-a", 1)) == ()
    assert end_leftover(ProcessIdentity(0, 0.0, "mark-a", 1)) == ()
    assert other.poll() is None


def test_an_orphan_is_found_by_its_mark_although_its_leaders_pid_is_anothers(bystander):
    # The leader is gone and its pid another's; a process that it started lives, in a session of
    # its own and with init for a parent.
    orphan, _ = bystander("mark-a")
    stranger, born = bystander()
    ended = end_leftover(ProcessIdentity(stranger.pid, born - 60.0, "mark-a", 1))
    assert ended == (orphan.pid,)
    assert orphan.wait(60) == -9
    assert stranger.poll() is None


def test_nothing_of_another_machine_is_touched(bystander):
    process, born = bystander("mark-a")
    assert end_leftover(ProcessIdentity(process.pid, born, "mark-a", 1, "elsewhere")) == ()
    assert process.poll() is None


def launch(log, started: float | None, created: float | None = None) -> Launch:
    process = None if started is None else ProcessIdentity(1, started, "m", 1)
    intent = LaunchIntent(Configuration(), (), "m", str(log))
    return Launch(0, LaunchState.RUNNING, intent, process=process, created=created)


def test_the_work_of_a_killed_launch_ends_with_its_logs_last_line(tmp_path):
    log = tmp_path / "log"
    now = time.time()
    assert seconds_seen(launch(log, now - 90)) == 0.0  # no log: nothing is known
    log.write_text("served\n")
    os.utime(log, (now - 30, now - 30))
    assert seconds_seen(launch(log, now - 90)) == pytest.approx(60, abs=0.01)
    assert seconds_seen(launch(log, None)) == 0.0
    assert seconds_seen(launch(log, now)) == 0.0  # a clock that was set back
    # Prepared during the launch before: its process is older than the launch.
    prepared = launch(log, now - 900, created=now - 80)
    assert seconds_seen(prepared) == pytest.approx(50, abs=0.01)
    assert seconds_seen(launch(log, now - 90, created=now - 91)) == pytest.approx(60, abs=0.01)
    os.utime(log, (now + 1e6, now + 1e6))
    assert 90 <= seconds_seen(launch(log, now - 90)) < 3600  # never more than has passed


def test_a_log_is_known_by_its_digest(tmp_path):
    log = tmp_path / "log"
    assert log_digest(launch(log, None)) is None
    log.write_bytes(b"abc")
    assert log_digest(launch(log, None)) == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
