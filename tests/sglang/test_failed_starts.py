"""Failing starts of the real SGLang: exit code and reported failure.

Most starts are forked from one process that has imported SGLang (`fork_server.py`), because imports
take most of a start. One runs in the interpreter of SGLang's environment (`sglang_long`: all).

    RECORD_FAILED_STARTS=1 pytest tests/sglang/test_failed_starts.py -k forked

writes the logs to `tests/data/failed` for the fast suite.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from runners.base import RunnerError
from runners.conformance import marked_pids
from runners.sglang.failures import PostMortem
from runners.sglang.runner import SGLangRunner
from search_spaces.configuration import Configuration

from . import fork_server
from .failed_starts import (
    OF_OUR_OWN_FINDING,
    RECORDED_BEFORE,
    STARTS,
    FailedStart,
    make_broken_models,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runners.sglang_cpu import CpuServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]

RECORDINGS = Path(__file__).parents[1] / "data" / "failed"
EXPECTED = json.loads((RECORDINGS / "expected.json").read_text())
STARTED_AS_THEY_ARE = ("bad_draft_path",)
"""One that fails in the launcher, before two more processes import SGLang."""

DONE_ELSEWHERE = {
    "port_in_use": "test_port_taken.py",
    "crash_scheduler_killed": "test_live_end.py",
    "bad_model_path_online": "here, below",
    "oom_kv": "here, below",
}
LOG_LINES = 150


def place_of(name: str) -> str:
    """Path of the recording, without `.log`."""
    return f"0.5.23-cpu{'' if name in RECORDED_BEFORE else '-own'}/{name}"


@pytest.fixture(scope="module")
def folders(cpu_server: CpuServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    broken = tmp_path_factory.mktemp("broken")
    make_broken_models(cpu_server.models, broken)
    return {"{models}": cpu_server.models, "{broken}": broken}


@pytest.fixture(scope="module")
def forked_python(
    cpu_server: CpuServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Replacement of the interpreter; a start takes a second or two."""
    folder = tmp_path_factory.mktemp("fork")
    # SGLang reads these at import, so they are the same for all starts.
    env = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with (folder / "fork-server.log").open("wb") as log:
        server = subprocess.Popen(
            [cpu_server.python, fork_server.__file__, folder / "socket"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"ready\n", (folder / "fork-server.log").read_text()
        yield fork_server.forked_python(
            folder / "python", folder / "socket", str(cpu_server.python)
        )
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(timeout=60)


class Attempt:
    """One start by the tuner's runner that must fail."""

    def __init__(self, tiny, intent, tmp_path, monkeypatch, folders):
        self._tiny, self._intent, self._tmp_path = tiny, intent, tmp_path
        self._folders = folders
        self.codes = []
        of = PostMortem.of

        def noting(post_mortem, exit_code, phase):
            self.codes.append(exit_code)
            return of(post_mortem, exit_code, phase)

        monkeypatch.setattr(PostMortem, "of", noting)

    def __call__(self, start, python, *, env=None, on_progress=None):
        """Start the server; return the failure."""
        flags = {k: v for k, v in self._tiny.server.flags.items() if k not in start.without}
        flags |= {flag: self._placed(value) for flag, value in start.flags.items()}
        if start.limit is not None:
            limited = self._tmp_path / "limited"
            limited.write_text(f'#!/bin/sh\nulimit {start.limit}\nexec "{python}" "$@"\n')
            limited.chmod(0o755)
            python = limited
        server = self._tiny.server.model_copy(
            update={
                "flags": flags,
                "python": str(python),
                # Without this the warm-up of a draft model would compile.
                "env": self._tiny.server.env | {"TORCH_COMPILE_DISABLE": "1"} | (env or {}),
            }
        )
        model = {"path": self._placed(start.model), "draft": None}
        study = self._tiny.model_copy(
            update={"server": server, "model": self._tiny.model.model_copy(update=model)}
        )
        self.intent = self._intent(Configuration())
        self.log = Path(self.intent.log)
        self.command = ""

        def note(_, command):
            self.command = " ".join(command.argv[1:])

        with pytest.raises(RunnerError) as caught:
            SGLangRunner(study, seed=0, log_dir=self._tmp_path).start(
                self.intent, note, on_progress
            ).close()
        assert marked_pids(self.intent.mark) == []
        return caught.value.failure

    def _placed(self, value):
        if isinstance(value, str):
            for name, folder in self._folders.items():
                value = value.replace(name, str(folder))
        return value

    def record(self, name, code):
        """Write the log for the fast suite, without the paths of this machine."""
        text = self.log.read_text()
        venv = self._folders["{models}"].parent / "venv"
        shown = {str(folder): place.strip("{}") for place, folder in self._folders.items()}
        shown |= {str(venv): "/srv/venv", str(self._tmp_path): "/srv/run"}
        for path, instead in shown.items():
            text = text.replace(path, instead)
            self.command = self.command.replace(path, instead)
        lines = [line[:2000] for line in text.splitlines() if "server_args=" not in line]
        code = code if code >= 0 else 128 - code
        path = RECORDINGS / f"{place_of(name)}.log"
        path.parent.mkdir(exist_ok=True)
        lines = [f"$ python {self.command}", *lines[-LOG_LINES:], f"### exit_code={code}"]
        path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def attempt(tiny, intent, tmp_path, monkeypatch, folders):
    return Attempt(tiny, intent, tmp_path, monkeypatch, folders)


def check(name, attempt, failure):
    if os.environ.get("RECORD_FAILED_STARTS") and name in OF_OUR_OWN_FINDING:
        attempt.record(name, attempt.codes[-1])
        return
    expected = EXPECTED[place_of(name)]
    said = {"kind": failure.kind, "phase": failure.phase, "fault": failure.fault}
    assert said == {key: expected[key] for key in said}, failure.message
    assert expected["message"] in failure.message
    recorded = (RECORDINGS / f"{place_of(name)}.log").read_text()
    stated = re.search(r"^### exit_code=(\d+)", recorded, re.MULTILINE)
    code = int(stated[1]) if stated else 137
    codes = {1, -9} if STARTS[name].whoever_is_first else {code if code < 128 else 128 - code}
    # None if SGLang announced its end but took longer than the runner waits.
    assert set(attempt.codes) <= codes


@pytest.mark.parametrize("name", STARTS)
def test_forked(name, attempt, forked_python):
    check(name, attempt, attempt(STARTS[name], forked_python))


@pytest.mark.parametrize("name", STARTED_AS_THEY_ARE)
def test_start_without_fork_server(name, attempt, cpu_server):
    check(name, attempt, attempt(STARTS[name], cpu_server.python))


@pytest.mark.sglang_long
@pytest.mark.parametrize(
    "name",
    # Without the fork server the imports would already hit the limits.
    [name for name in STARTS if name not in STARTED_AS_THEY_ARE and STARTS[name].limit is None],
)
def test_other_starts_without_fork_server(name, attempt, cpu_server):
    check(name, attempt, attempt(STARTS[name], cpu_server.python))


def _scheduler_that_writes(log: Path) -> psutil.Process:
    """The launcher's first child; a forked scheduler cannot rename itself."""
    writers = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if Path(f"/proc/{process.pid}/fd/1").readlink() == log:
                writers.append(process)
    children = next(found for process in writers if (found := process.children()))
    return min(children, key=psutil.Process.create_time)


def test_killed_scheduler_while_starting(attempt, forked_python):
    """Kill it like the kernel's out-of-memory killer, which a test must not provoke."""

    def kill(progress):
        if progress.phase == "distributed":
            _scheduler_that_writes(attempt.log).kill()

    failure = attempt(FailedStart(), forked_python, on_progress=kill)
    assert (failure.kind, failure.fault) == ("scheduler_killed", "host"), failure.message
    assert "dmesg" in failure.message
    # 1 until the launcher knows that the scheduler is ready, then as in `crash_scheduler_killed`.
    assert set(attempt.codes) <= {1, -9}


@pytest.mark.sglang_long
def test_unreachable_hub(attempt, cpu_server):
    """Without HF_HUB_OFFLINE the client retries for most of a minute."""
    env = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    failure = attempt(STARTS["hf_repo_offline"], cpu_server.python, env=env)
    assert (failure.kind, failure.phase, failure.fault) == (
        "model_not_found",
        "arguments",
        "study",
    ), failure.message
    assert attempt.codes == [1]


def test_every_recording_has_a_start():
    recorded = {path.stem for path in RECORDINGS.glob("0.5.23-cpu*/*.log")}
    assert recorded == STARTS.keys() | DONE_ELSEWHERE.keys()
    assert len(OF_OUR_OWN_FINDING) >= 10
