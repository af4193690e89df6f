"""Launchers that have imported SGLang before they are told which server to be."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from results.records import LaunchIntent
from runners.plugin.package import FOLDER
from runners.process import prepared
from runners.process.prepared import NextLauncher, PreparedLauncher
from runners.process.processes import MARK, ServerProcess
from runners.sglang.runner import SGLangRunner
from search_spaces.configuration import Configuration
from search_spaces.study_file.study import parse_study

from .fake_sglang import LONG_S, SERVES, command, gone, held, write_sglang

if TYPE_CHECKING:
    from runners.base import LaunchCommand

__all__ = ["held"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return write_sglang(tmp_path / "site")


def told(log: Path) -> dict[str, object]:
    return json.loads(log.read_text().splitlines()[-1])


def ended(process: ServerProcess) -> int:
    deadline = time.monotonic() + LONG_S
    while (code := process.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return code


def launch_prepared(
    before: LaunchCommand, now: LaunchCommand, log: Path, held
) -> dict[str, object]:
    """Prepares for a launch like `before`, and launches `now`."""
    launcher = NextLauncher(wanted=True)
    held(launcher)
    launcher.prepare(before, log.parent)
    launcher.park()
    parked = launcher.pid
    assert parked is not None
    taken = launcher.take(now, log)
    assert taken is not None
    assert launcher.pid is None
    process = taken.process(now, mark="a-mark", port=1)
    assert process.identity.pid == parked
    assert "argv" not in log.read_text(), "it waits to be told"
    taken.become(now, process)
    assert ended(process) == 0
    assert process.environ()[MARK] == "a-mark"
    return told(log)


def test_a_prepared_launcher_becomes_what_would_have_been_started(site, tmp_path, held):
    now = command(site, "--port", "7", NCCL_PROTO="LL128")
    log = tmp_path / "logs" / "exec.log"
    process = ServerProcess.start(now, mark="a-mark", port=1, log=log)
    assert ended(process) == 0
    started = told(log)
    before = command(site, "--port", "6", NCCL_ALGO="Ring")
    prepared_ = launch_prepared(before, now, tmp_path / "logs" / "prepared.log", held)
    assert started.pop("pid") != prepared_.pop("pid")
    assert prepared_ == started
    assert prepared_["environ"]["NCCL_PROTO"] == "LL128"
    assert "NCCL_ALGO" not in prepared_["environ"]
    assert prepared_["environ"]["FROM_IMPORT"] == "1", "what imports set is kept"
    assert sorted(path.name for path in log.parent.iterdir()) == ["exec.log", "prepared.log"]


def test_its_log_begins_with_its_imports(site, tmp_path, held):
    log = tmp_path / "a.log"
    launch_prepared(command(site), command(site), log, held)
    assert log.read_text().splitlines()[:2] == ["arguments", "http"]


@pytest.mark.parametrize(
    "other",
    [
        {"SGLANG_SIMULATE_ACC_LEN": "2.5"},
        {"OMP_NUM_THREADS": "3"},
        {"CUDA_VISIBLE_DEVICES": "1"},
    ],
)
def test_a_variable_that_imports_may_read_needs_a_launcher_of_its_own(site, tmp_path, held, other):
    launcher = NextLauncher(wanted=True)
    held(launcher)
    launcher.prepare(command(site), tmp_path)
    pid = launcher.pid
    assert launcher.take(command(site, **other), tmp_path / "a.log") is None
    assert gone(pid)
    assert [path.name for path in tmp_path.iterdir()] == ["site"], "its output is gone with it"


def test_another_interpreter_or_program_needs_one_of_its_own(site, tmp_path, held):
    launcher = NextLauncher(wanted=True)
    held(launcher)
    launcher.prepare(replace(command(site), argv=("docker", "exec", "x")), tmp_path)
    assert launcher.pid is None
    launcher.prepare(command(site), tmp_path)
    other = command(site)
    other = replace(other, argv=("/usr/bin/other", *other.argv[1:]))
    assert launcher.take(other, tmp_path / "a.log") is None


def test_none_is_prepared_unless_it_is_wanted(site, tmp_path):
    launcher = NextLauncher(wanted=False)
    launcher.prepare(command(site), tmp_path)
    assert launcher.pid is None
    launcher.park()
    assert launcher.take(command(site), tmp_path / "a.log") is None


def test_once_parked_it_does_nothing(site, tmp_path, held):
    launcher = NextLauncher(wanted=True)
    held(launcher)
    launcher.prepare(command(site), tmp_path)
    launcher.park()
    process = psutil.Process(launcher.pid)

    def used() -> object:
        return process.cpu_times(), process.num_ctx_switches()

    deadline = time.monotonic() + LONG_S
    while True:
        before = used()
        time.sleep(1.0)
        if used() == before:  # not even woken for a second
            break
        assert time.monotonic() < deadline
    assert process.children() == []


def test_imports_that_fail_are_left_to_the_launch(tmp_path, held):
    site = write_sglang(tmp_path / "site", imports="raise ImportError('no such kernel')")
    launcher = NextLauncher(wanted=True)
    held(launcher)
    launcher.prepare(command(site), tmp_path)
    launcher.park()
    assert launcher.pid is None
    assert launcher.given_up == "its imports failed"
    launcher.prepare(command(site), tmp_path)
    assert launcher.pid is None, "the next would fail as well"
    assert launcher.take(command(site), tmp_path / "a.log") is None


def test_one_that_does_not_come_to_rest_is_ended_before_anything_is_measured(tmp_path):
    site = write_sglang(tmp_path / "site", imports="import time; time.sleep(600)")
    launcher = PreparedLauncher.start(command(site), tmp_path)
    assert launcher is not None
    assert launcher.park(wait_s=0.2) == "its imports did not end within 0.2 s of the server's"
    launcher.discard()
    assert gone(launcher.popen.pid)


def test_what_a_killed_tuner_left_is_cleared_and_nothing_else(site, tmp_path, held):
    left = tmp_path / ".prepared-0123.log"
    left.write_text("arguments\n")
    other = NextLauncher(wanted=True)  # another tuner's, in the same folder
    held(other)
    other.prepare(command(site), tmp_path)
    [its] = set(tmp_path.glob(".prepared-*.log")) - {left}
    launcher = NextLauncher(wanted=False)  # also where none is to be prepared any more
    launcher.prepare(command(site), tmp_path)
    assert list(tmp_path.glob(".prepared-*.log")) == [its]
    other.park()
    log = tmp_path / "a.log"
    assert other.take(command(site), log) is not None
    assert log.exists()


@pytest.mark.parametrize("stage", ["importing", "imported", "parked"])
def test_it_ends_with_the_tuner(tmp_path, stage):
    sleep = "import time; time.sleep(600)" if stage == "importing" else ""
    site = write_sglang(tmp_path / "site", imports=sleep)
    script = (
        "import pathlib, select, sys, time\n"
        "from runners.base import LaunchCommand\n"
        "from runners.process.prepared import PreparedLauncher\n"
        f"command = LaunchCommand({command(site).argv!r}, {command(site).env!r})\n"
        f"made = PreparedLauncher.start(command, pathlib.Path({str(tmp_path)!r}))\n"
        f"if {stage == 'imported'}: select.select([made._channel], [], [])\n"  # not read yet
        f"if {stage == 'parked'}: assert made.park() is None\n"
        "print(made.popen.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    tuner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    pid = int(tuner.stdout.readline())
    tuner.kill()
    tuner.wait()
    tuner.stdout.close()
    assert gone(pid)
    assert len(list(tmp_path.glob(".prepared-*.log"))) == 1, "nobody was left to remove it"
    NextLauncher(wanted=False).prepare(command(site), tmp_path)
    assert list(tmp_path.glob(".prepared-*.log")) == [], "but the next tuner does"


def test_plugins_find_nothing_imported_that_they_might_change(tmp_path, held):
    site = write_sglang(tmp_path / "site", plugin=True)
    log = tmp_path / "a.log"
    launch_prepared(command(site), command(site), log, held)
    assert log.read_text().splitlines()[:2] == ["arguments", "http"]
    launcher = NextLauncher(wanted=True)
    held(launcher)
    launcher.prepare(command(site), tmp_path)
    launcher.park()
    [spool] = tmp_path.glob(".prepared-*.log")
    assert spool.read_text().splitlines() == ["arguments"], "the HTTP server's modules wait"


def test_the_tuners_own_plugin_changes_schedulers_alone(tmp_path, held):
    site = write_sglang(tmp_path / "site")
    path = f"{FOLDER}:{site}"
    launcher = NextLauncher(wanted=True)
    held(launcher)
    launcher.prepare(command(site, PYTHONPATH=path, TUNER_CYCLE_CLOCK="1"), tmp_path)
    launcher.park()
    [spool] = tmp_path.glob(".prepared-*.log")
    assert spool.read_text().splitlines() == ["arguments", "http"]
    switched = command(site, PYTHONPATH=path, TUNER_CYCLE_CLOCK="1", TUNER_SWITCHABLE_STEPS="1,2")
    taken = launcher.take(switched, tmp_path / "launch.log")
    assert taken is not None
    taken.discard()


class _Runner(SGLangRunner):
    """Of a package that calls itself SGLang and serves simulations."""

    simulated = True


def test_the_second_launch_of_a_runner_is_prepared_while_the_first_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_PREPARE_NEXT", "1")
    site = write_sglang(tmp_path / "site", SERVES)
    root = Path(prepared.__file__).parent.parent
    study = parse_study(
        "study: s\nmodel: {path: org/model}\n"
        f"server: {{python: {sys.executable}, flags: {{device: cpu}}, env: {{"
        f"PYTHONPATH: '{site}:{root}', TUNER_SIM_PROFILE: equal, TUNER_SIM_TIME_SCALE: 100}}}}\n"
        "space: {speculation: [{algorithm: none}], env: {NCCL_PROTO: [null, LL128]}}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 8, points: [{concurrency: 1}]}\n"
        "budget: {launches: 2}\n",
        "s",
    )
    runner = _Runner(study, seed=0, log_dir=tmp_path / "logs")
    pids, parked = [], []
    try:
        for protocol in (None, "LL128"):
            configuration = Configuration.of(env={"NCCL_PROTO": protocol})
            mark = f"mark-{protocol}"
            intent = LaunchIntent(configuration, (), mark, str(tmp_path / "logs" / f"{mark}.log"))
            with runner.start(intent, lambda process, _: pids.append(process.pid)) as session:
                assert session.resolved.configuration == configuration
                parked.append(runner.next_launcher.pid)
            assert gone(pids[-1])
        assert pids[1] == parked[0]
        assert parked[1] not in {None, *pids}
    finally:
        runner.next_launcher.discard()
    assert gone(parked[1])
