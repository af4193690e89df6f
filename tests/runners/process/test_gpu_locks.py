"""Device locks: holders, waiting, and release after any end."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from runners.process.gpu_locks import (
    FOLDER_VARIABLE,
    DeviceBusyError,
    DeviceLocks,
    LeftServerError,
    folder,
)
from runners.process.processes import MARK

pytestmark = pytest.mark.slow

HOLDER = """
import sys, time
from runners.process.gpu_locks import DeviceLocks
import subprocess
with DeviceLocks(sys.argv[2:], sys.argv[1]):
    # Like a server, the child outlives the SIGKILL of its tuner and holds no lock.
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def hold():
    """Another process that holds devices until the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start(study: str, *devices: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, study, *devices],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_busy_device_names_its_holder(hold):
    process = hold("kimi", "gpu-a", "gpu-b")
    with pytest.raises(DeviceBusyError) as caught, DeviceLocks(["gpu-c", "gpu-b"], "other"):
        pass
    assert f"gpu-b is in use by a tuner (pid {process.pid}, study kimi, since " in str(caught.value)
    # The devices locked before the refusal are free again.
    with DeviceLocks(["gpu-c", "gpu-d"], "third"):
        pass


def test_kill_9_releases_a_device_while_a_child_lives(hold, locks):
    process = hold("kimi", "gpu-a")
    with pytest.raises(DeviceBusyError), DeviceLocks(["gpu-a"], "next"):
        pass
    process.kill()
    process.wait()
    with DeviceLocks(["gpu-a"], "next"):
        assert json.loads((locks / "gpu-a.lock").read_text())["pid"] == os.getpid()


def test_leftover_server_blocks_other_studies(hold, locks):
    process = hold("kimi", "gpu-a", "gpu-b")
    # Like the launcher: first the mark, then the server.
    server = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, MARK: "mark-of-kimi", "SPT_NOENV": "1"},
    )
    try:
        holder = json.loads((locks / "gpu-a.lock").read_text())
        holder |= {"storage": "sqlite:////my data/t.db", "launch": "mark-of-kimi"}
        process.kill()
        process.wait()
        (locks / "gpu-a.lock").write_text(json.dumps(holder))
        with pytest.raises(LeftServerError) as caught, DeviceLocks(["gpu-b", "gpu-a"], "next"):
            pass
        said = str(caught.value)
        assert f"gpu-a is still in use by the server (processes {server.pid})" in said
        assert "`tuner resume --study kimi --storage 'sqlite:////my data/t.db'`" in said
        assert f"`kill -9 {server.pid}`" in said
        with pytest.raises(LeftServerError), DeviceLocks(["gpu-a"], "kimi", "sqlite:////other.db"):
            pass
        with DeviceLocks(["gpu-a"], "kimi", "sqlite:////my data/t.db"):
            pass  # which ends it, and has not yet
        with pytest.raises(LeftServerError), DeviceLocks(["gpu-a"], "next", waiting=print):
            pass
    finally:
        server.kill()
        server.communicate()
    with DeviceLocks(["gpu-a"], "next") as held:
        held.announce("mark-of-next")
        assert json.loads((locks / "gpu-a.lock").read_text())["launch"] == "mark-of-next"


def test_lock_file_of_an_earlier_version_is_read(locks):
    with DeviceLocks(["gpu-a"], "s"):
        pass
    (locks / "gpu-a.lock").write_text('{"pid": 1, "study": "old", "since": "then"}')
    with DeviceLocks(["gpu-a"], "s", "sqlite:///t.db"):
        holder = json.loads((locks / "gpu-a.lock").read_text())
    assert (holder["study"], holder["storage"], holder["launch"]) == ("s", "sqlite:///t.db", "")


def test_waiting_reports_once_and_gets_the_device_after_the_holder_dies(hold):
    process = hold("kimi", "gpu-a")
    waited: list[DeviceBusyError] = []
    heard = threading.Event()

    def tell(busy: DeviceBusyError) -> None:
        waited.append(busy)
        heard.set()

    def end() -> None:
        heard.wait(60)
        time.sleep(1.2)  # longer than it looks again
        process.send_signal(signal.SIGKILL)

    ending = threading.Thread(target=end)
    ending.start()
    with DeviceLocks(["gpu-a"], "next", waiting=tell):
        assert process.wait(60) == -signal.SIGKILL
    ending.join()
    assert [str(busy).split()[0] for busy in waited] == ["gpu-a"]


def test_lock_folder_and_files_are_writable_for_all_users(locks):
    with DeviceLocks(["gpu-a"], "s"):
        assert stat.S_IMODE(locks.stat().st_mode) == 0o1777
        (file,) = locks.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o666
        assert json.loads(file.read_text())["pid"] == os.getpid()
    assert file.exists()  # and says nothing any more
    with DeviceLocks(["gpu-a"], "t"):
        assert json.loads(file.read_text())["study"] == "t"


def test_links_in_the_lock_folder_are_not_followed(locks, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder()
    (locks / "gpu-a.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"), DeviceLocks(["gpu-a"], "s"):
        pass
    assert victim.read_text() == "precious"


def test_removed_lock_file_is_locked_again(hold, locks):
    hold("kimi", "gpu-a")
    (locks / "gpu-a.lock").unlink()
    # After the removal of a lock file the old lock is lost, but the next lock works.
    with DeviceLocks(["gpu-a"], "s"), pytest.raises(DeviceBusyError), DeviceLocks(["gpu-a"], "t"):
        pass


def test_no_devices_need_no_lock(locks):
    with DeviceLocks([], "s"):
        assert not locks.exists()
