"""The tuner's reaction to every fault of the simulated server.

The tables of `docs/simulated-server.md` are the tests: a wrong row fails, and a kind without a row.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress

import psutil
import pytest
import yaml

from runners.base import RunnerError
from runners.conformance import Launcher, marked_pids
from runners.process.ports import listens
from runners.sglang.failures import recognise
from runners.sglang.startup import StartTimeouts
from runners.simulated import SimulatedRunner
from runners.simulated_server.engine.profile import PROFILES
from runners.simulated_server.faults.crashes import crash
from runners.simulated_server.faults.misbehaviour import CAUSES, HANG_PHASES, KINDS
from runners.simulated_server.launch.flags import resolve
from runners.simulated_server.launch.log import ServerLog
from search_spaces.study_file.load import parse_study
from search_spaces.workload import OperatingPoint

from .conftest import STUDY, eagle3
from .misbehaviour_table import crashes as documented_crashes
from .misbehaviour_table import examples, plugin_examples

pytestmark = pytest.mark.slow

PHASES = {"load_weight": "weights", "load_draft": "weights"}
"""The tuner's names of start-up phases that the simulator names differently."""
SERVING = ("serving", "idle", "flush")
POINT = OperatingPoint(1)
SCALE = 40.0
REQUESTS = {"drift": 24}
"""Requests per window for faults that need longer windows; the others have 8."""


class _KilledError(Exception):
    pass


def _killed(*_):
    raise _KilledError


@pytest.mark.parametrize("row", documented_crashes(), ids="-".join)
def test_crash_is_recognised(row, capsys, monkeypatch):
    phase, cause, kind, tuners_phase, fault = row
    # `crash` ends its own process group only if it leads one.
    monkeypatch.setattr("os.getpgrp", lambda: 0)
    monkeypatch.setattr("os._exit", _killed)
    flags = resolve(
        {
            "model_path": "m",
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": "d",
            "mem_fraction_static": 0.42,
        }
    )
    exit_code = -signal.SIGKILL
    try:
        crash(ServerLog(2), phase, cause, flags, time_scale=1e6)
    except _KilledError:
        pass
    except SystemExit as end:
        exit_code = end.code
    log = capsys.readouterr().err
    failure = recognise(log, exit_code=exit_code, phase=PHASES.get(phase, tuners_phase))
    assert (failure.kind, failure.phase, failure.fault) == (kind, tuners_phase, fault)
    assert len(failure.message) > 20
    if cause == "kv_pool_too_small":
        assert "mem_fraction_static=0.42" in failure.message
    if cause == "no_room_for_kv":
        assert "--mem-fraction-static=0.42. Raise --mem-fraction-static above 0.853" in log


def test_docs_list_every_crash():
    listed = {(phase, cause) for phase, cause, *_ in documented_crashes()}
    known = {(phase, cause) for phase, causes in CAUSES.items() for cause in causes}
    assert {pair for pair in known if pair[0] not in {"idle", "flush"}} == listed
    assert CAUSES["idle"] == CAUSES["flush"] == CAUSES["serving"]


def test_docs_list_every_fault():
    listed = [example for example, *_ in examples()]
    ours = {example["kind"] for example, *_ in plugin_examples()}
    assert {example["kind"] for example in listed} | ours == set(KINDS)
    assert {e["phase"] for e in listed if e["kind"] == "hang"} == HANG_PHASES


@pytest.fixture(scope="module")
def quick_profile(tmp_path_factory):
    """The Kimi machine without noise and start-up time."""
    data = yaml.safe_load((PROFILES / "kimi.yaml").read_text())
    data |= {
        "noise": {"launch": 0.0, "block": 0.0, "prompt": 0.0},
        "startup": dict.fromkeys(data["startup"], 0.0),
    }
    path = tmp_path_factory.mktemp("profile") / "quick.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture
def launcher(quick_profile, tmp_path, monkeypatch):
    """Make launchers of misbehaving servers, and check that no process is left."""
    made = []

    def make(fault, timeouts=None, scale=SCALE):
        requests = f"requests: {REQUESTS.get(fault['kind'], 8)}"
        text = STUDY.replace("requests: 4", requests)
        if fault["kind"] == "acceptance_stale":  # by length
            text = text.replace("output_tokens: 32", "output_tokens: {mean: 32, spread: 0}")
        study = parse_study(text, "quick")
        runner = SimulatedRunner(
            study,
            seed=0,
            log_dir=tmp_path,
            profile=str(quick_profile),
            time_scale=scale,
            timeouts=timeouts,
            env={"TUNER_SIM_MISBEHAVE": json.dumps([fault])},
        )
        made.append(Launcher(runner, tmp_path))
        return made[-1]

    # Short real times, since the expected event happens at once or never.
    monkeypatch.setattr("runners.sglang.failures.DEATH_S", 1.0)
    monkeypatch.setattr("runners.sglang.session.GRACE_S", 6.0)
    monkeypatch.setattr("runners.sglang.session._PORT_FREE_S", 0.3)
    yield make
    for one in made:
        for mark in one.marks:
            for pid in marked_pids(mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _measure_until_it_fails(session):
    for _ in range(4):
        session.measure(POINT)
    raise AssertionError("nothing failed in four windows")


def _id(example):
    return "-".join(str(value) for value in example.values())


def _cases(*said):
    return [
        pytest.param(example, code, id=_id(example))
        for example, word, code in examples()
        if word in said
    ]


@pytest.mark.parametrize(
    ("fault", "code"),
    [case for case in _cases("failure") if case.values[1] == "ready_timeout"],
)
def test_hang_during_start(fault, code, launcher):
    phase = PHASES.get(fault["phase"], fault["phase"])
    others = ("arguments", "distributed", "weights", "kv_cache", "cuda_graph", "warmup", "ready")
    seconds = tuple((other, 0.0 if other == phase else 1e6) for other in others)
    one = launcher(fault, StartTimeouts(seconds, floor_s=0.5))
    with pytest.raises(RunnerError) as caught:
        one.start(eagle3(2))
    assert (caught.value.failure.kind, caught.value.failure.phase) == (code, phase)
    one.assert_nothing_left()


@pytest.mark.parametrize(
    ("fault", "code"),
    [case for case in _cases("failure") if case.values[1] not in {"ready_timeout", "port_left"}],
)
def test_failure_under_load(fault, code, launcher):
    one = launcher(fault)
    session = one.start(eagle3(2))
    if code == "stall":
        session._load._stall_timeout_s = 2.0
    with pytest.raises(RunnerError) as caught:
        _measure_until_it_fails(session)
    assert (caught.value.failure.kind, caught.value.failure.phase) == (code, "load")
    session.close()
    one.assert_nothing_left()


def test_slow_death_during_start_is_not_waited_for(launcher, monkeypatch):
    monkeypatch.setattr("runners.sglang.startup.DEATH_S", 0.2)
    monkeypatch.setattr("runners.sglang.startup._EARLY_HEALTH_S", 1.0)
    monkeypatch.setattr("runners.sglang.process_runner._FAILED_GRACE_S", 0.3)
    one = launcher({"kind": "exit", "phase": "warmup", "lingers": True}, scale=2.0)
    began = time.monotonic()
    with pytest.raises(RunnerError) as caught:
        one.start(eagle3(2))
    assert (caught.value.failure.kind, caught.value.failure.phase) == ("cuda_oom", "warmup")
    assert time.monotonic() - began < 30.0, "the start waited for core dumps"
    one.assert_nothing_left()


@pytest.mark.parametrize(("fault", "code"), _cases("invalid", "warning"))
def test_window_is_invalid(fault, code, launcher):
    one = launcher(fault)
    with one.start(eagle3(2)) as session:
        measurement = session.measure(POINT)
    found = measurement.warnings if code == "degenerate_output" else measurement.invalid
    assert code in {reason.split(":")[0] for reason in found}, (
        measurement.invalid,
        measurement.warnings,
    )
    one.assert_nothing_left()


@pytest.mark.parametrize(("fault", "code"), _cases("none"))
def test_window_stays_valid(fault, code, launcher):
    assert code is None
    one = launcher(fault)
    with one.start(eagle3(2)) as session:
        measurement = session.measure(POINT)
    # On a busy machine a window may be unsteady, but loses no request.
    codes = {reason.split(":")[0] for reason in measurement.invalid}
    assert codes <= {
        "unsteady",
        "silent",
        "client_paused",
        "client_saturated",
        "simulation_behind",
    }
    if fault["kind"] == "slow":
        assert measurement.output_tok_s < 60  # 94 without the fault
    one.assert_nothing_left()


@pytest.mark.parametrize(("fault", "code"), _cases("ended"))
def test_server_that_does_not_stop_cleanly(fault, code, launcher, monkeypatch):
    assert code is None
    if fault["kind"] == "ignore_sigterm":
        monkeypatch.setattr("runners.sglang.session.GRACE_S", 0.5)
    one = launcher(fault)
    session = one.start(eagle3(2))
    left = marked_pids(one.marks[0])
    assert len(left) == (2 if fault["kind"] == "orphan" else 1)
    session.close()
    one.assert_nothing_left()


def test_unmarked_orphan_on_the_port_is_reported(launcher):
    one = launcher({"kind": "orphan", "marked": False})
    session = one.start(eagle3(2))
    port = one.processes[0].port
    orphans = [
        process
        for process in psutil.process_iter()
        if process.pid != one.processes[0].pid
        and _command(process)[:2] == [sys.executable, "-I"]
        and listens([process], port)
    ]
    try:
        assert len(orphans) == 1
        with pytest.raises(RunnerError) as caught:
            session.close()
        assert (caught.value.failure.kind, caught.value.failure.fault) == ("port_left", "host")
        assert str(port) in caught.value.failure.message
        assert orphans[0].is_running(), "a process without our mark must live"
    finally:
        for orphan in orphans:
            orphan.kill()


def _command(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
