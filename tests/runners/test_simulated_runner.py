"""The simulated runner: real processes, real HTTP, and every way in which a server fails."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from runners.base import DraftPlacement, RunnerError
from runners.conformance import HotSwitchConformance, Launcher, marked_pids
from runners.plugin.inside_sglang.tuner_sglang_plugin import conditions
from runners.process.environment import CommandPrefix
from runners.registry import make_runner
from runners.server_info import read_server_info
from runners.sglang.startup import StartTimeouts
from runners.simulated import MUST_BE_ONE, MUST_BE_UNSET, SimulatedRunner
from search_spaces.configuration import Configuration, Setting
from search_spaces.workload import OperatingPoint

from .conftest import eagle3

if TYPE_CHECKING:
    from pathlib import Path

    from search_spaces.study_file.study import Study

pytestmark = pytest.mark.slow

PLAIN = Configuration.of(
    flags={"attention-backend": None, "enable-mixed-chunk": None}, env={"NCCL_PROTO": None}
)
POINT = OperatingPoint(1)


def flagged(steps, **flags):
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    chain = eagle3(steps)
    return replace(chain, flags=tuple({**dict(chain.flags), **named}.items()))


def misbehaving(
    study: Study, logs: Path, *, timeouts: StartTimeouts | None = None, **how
) -> SimulatedRunner:
    return SimulatedRunner(
        study,
        seed=0,
        log_dir=logs,
        timeouts=timeouts,
        env={"TUNER_SIM_MISBEHAVE": json.dumps([how])},
    )


class TestConformance(HotSwitchConformance):
    @pytest.fixture
    def runner(self, study, tmp_path):
        return make_runner("simulated", study, seed=0, log_dir=tmp_path)

    @pytest.fixture
    def configurations(self):
        trees = (eagle3(2, 2, 4), eagle3(3, 2, 6), eagle3(3, 4, 6))
        return (eagle3(2), eagle3(5), eagle3(1), eagle3(2, NCCL_PROTO="LL128"), PLAIN, *trees)

    @pytest.fixture
    def points(self):
        return (OperatingPoint(1), OperatingPoint(2))

    @pytest.fixture
    def failing(self):
        return eagle3(1, topk=2, tokens=16)  # the tree has 3 nodes


def test_command_is_real_and_simulated_command_is_simulated(study, tmp_path, monkeypatch):
    monkeypatch.delenv("TUNER_SGLANG_PYTHON", raising=False)
    runner = SimulatedRunner(study, seed=3, log_dir=tmp_path)
    real, simulated = runner.command(eagle3(2)), runner.simulated_command(eagle3(2))
    assert real.argv[:3] == ("python", "-m", "sglang.launch_server")
    assert simulated.argv[:3] == (sys.executable, "-m", "runners.simulated_server")
    assert real.argv[3:] == simulated.argv[3:]
    assert dict(simulated.env) == dict(real.env) | {
        "TUNER_SIM_PROFILE": "kimi",
        "TUNER_SIM_TIME_SCALE": "100",
        "TUNER_SIM_SEED": "3",
    }


def test_server_starts_at_the_largest_setting_and_launches_are_numbered(study, tmp_path, intent):
    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path, first_launch=7)
    argv = {}
    for steps in ((1, 5, 2), ()):
        command = runner.launch_command(intent(eagle3(1), *steps), host="h", port=1)
        argv[steps] = command.argv
        env = dict(command.env)
        assert env.get("TUNER_SWITCHABLE_STEPS") == ("1,2,5" if steps else None)
        assert env["TUNER_CYCLE_CLOCK"] == "1"
        assert env["TUNER_SIM_LAUNCH_INDEX"] == ("7" if steps else "8")
    at = argv[()].index("--speculative-num-steps") + 1
    assert argv[1, 5, 2][at] == "5"
    assert argv[()][at] == "1"


def test_clock_variable_of_the_tuner_turns_the_clock_off(study, tmp_path, intent, monkeypatch):
    monkeypatch.setenv("TUNER_CYCLE_CLOCK", "0")
    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path)
    assert runner.no_clock(eagle3(1)) == "TUNER_CYCLE_CLOCK=0 is set"
    for steps in ((1, 5), ()):
        env = dict(runner.launch_command(intent(eagle3(1), *steps), host="h", port=1).env)
        assert env.get("TUNER_CYCLE_CLOCK") is None
        assert env.get("TUNER_SWITCHABLE_STEPS") == ("1,5" if steps else None)


@pytest.mark.parametrize(
    ("a", "b", "together"),
    [
        (eagle3(1), eagle3(5), True),
        (eagle3(2, 2, 4), eagle3(2, 2, 4), True),
        (eagle3(2, 2, 4), eagle3(3, 2, 6), True),
        (eagle3(2, 2, 4), eagle3(2, 4, 4), False),
        (eagle3(2), eagle3(2, 2, 4), False),
        (eagle3(2, 2, 4), eagle3(5, 2, 4), False),
        (eagle3(2), eagle3(2, NCCL_PROTO="LL128"), False),
        (flagged(2, attn_dp_size=8), flagged(3, attn_dp_size=8), False),
        (flagged(2, attn_dp_size=None), flagged(3, attn_dp_size=None), True),
        (flagged(2, enable_dp_attention=True), flagged(3, enable_dp_attention=True), False),
        (flagged(2, speculative_adaptive=True), flagged(3, speculative_adaptive=True), False),
        (eagle3(2), PLAIN, False),
        (PLAIN, PLAIN, True),
    ],
)
def test_configurations_that_differ_in_setting_only_share_a_launch(study, tmp_path, a, b, together):
    assert SimulatedRunner(study, seed=0, log_dir=tmp_path).can_switch(a, b) is together


def test_can_switch_agrees_with_the_plugin():
    assert {name.replace("-", "_") for name in MUST_BE_ONE} == set(conditions.ONE)
    assert {name.replace("-", "_") for name in MUST_BE_UNSET} == set(conditions.NEVER)


def test_times_are_in_server_seconds(study, tmp_path):
    launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
    outer, before, inner = time.monotonic(), launcher.runner.now(), time.monotonic()
    with launcher.start(eagle3(2)) as session:
        # Between two looks at one clock each; a busy machine may stop between any of them.
        shortest = time.monotonic() - inner
        simulated = launcher.runner.now() - before
        longest = time.monotonic() - outer
        assert session.resolved.time_scale == 100.0
        assert shortest * 99 < simulated < longest * 101
        assert 0 < session.ready_s <= simulated
        weights = dict(session.phases)["weights"]
        assert weights > 5, "the profile's loading time, not a hundredth of it"
        # The story is near 90; unconverted it would be thousands. A busy machine lowers it.
        assert 2 < session.measure(POINT).output_tok_s < 200


def test_variables_reach_the_server_and_are_read_back(study, tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_PROTO", "Simple")
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
    for asked in (eagle3(2), eagle3(2, NCCL_PROTO="LL128")):
        with launcher.start(asked) as session:
            environ = psutil.Process(launcher.processes[-1].pid).environ()
            assert environ.get("NCCL_PROTO") == dict(asked.env)["NCCL_PROTO"]
            assert "NCCL_ALGO" not in environ, "null removes it also where the caller has set it"
            assert environ["NCCL_DEBUG"] == "WARN"
            assert session.resolved.configuration.env == asked.env


@pytest.mark.parametrize(
    ("phase", "reported"),
    [("load_weight", "weights"), ("cuda_graph", "cuda_graph")],
)
def test_a_server_that_dies_in_its_start(study, tmp_path, phase, reported):
    launcher = Launcher(misbehaving(study, tmp_path, kind="exit", phase=phase), tmp_path)
    with pytest.raises(RunnerError) as caught:
        launcher.start(eagle3(2))
    failure = caught.value.failure
    assert (failure.kind, failure.fault, failure.phase) == ("cuda_oom", "configuration", reported)
    assert "CUDA out of memory" in failure.message
    launcher.assert_nothing_left()


def test_unknown_server_flag_is_a_study_fault(study, tmp_path):
    flags = study.server.flags | {"no-such-flag": 1}
    server = study.server.model_copy(update={"flags": flags})
    broken = study.model_copy(update={"server": server})
    launcher = Launcher(SimulatedRunner(broken, seed=0, log_dir=tmp_path), tmp_path)
    with pytest.raises(RunnerError) as caught:
        launcher.start(eagle3(2))
    assert caught.value.failure.kind == "unknown_flag"
    assert caught.value.failure.fault == "study"


def test_a_server_that_dies_under_load(study, tmp_path):
    runner = misbehaving(study, tmp_path, kind="exit", phase="serving", after_requests=3)
    launcher = Launcher(runner, tmp_path)
    session = launcher.start(eagle3(2))
    with pytest.raises(RunnerError) as caught:
        session.measure(OperatingPoint(2))
    failure = caught.value.failure
    assert (failure.kind, failure.phase) == ("scheduler_killed", "load"), (
        "not just a lost connection"
    )
    session.close()
    launcher.assert_nothing_left()


def test_a_server_that_was_killed_between_windows(study, tmp_path):
    launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
    with launcher.start(eagle3(2), (Setting(1), Setting(2))) as session:
        os.killpg(launcher.processes[0].pid, signal.SIGKILL)
        with pytest.raises(RunnerError) as caught:
            session.measure(POINT)
        assert (caught.value.failure.kind, caught.value.failure.fault) == ("server_killed", "host")
        with pytest.raises(RunnerError) as caught:
            session.apply(Setting(1))
        assert caught.value.failure.kind == "server_killed"
    launcher.assert_nothing_left()


def test_server_killed_before_readback(study, tmp_path, monkeypatch):
    launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)

    def kill_first(*arguments, **more):
        os.killpg(launcher.processes[0].pid, signal.SIGKILL)
        return read_server_info(*arguments, **more)

    monkeypatch.setattr("runners.sglang.process_runner.read_server_info", kill_first)
    with pytest.raises(RunnerError) as caught:
        launcher.start(eagle3(2))
    failure = caught.value.failure
    assert (failure.kind, failure.phase, failure.fault) == ("server_killed", "ready", "host")
    launcher.assert_nothing_left()


def test_server_stopped_by_another_process_is_a_host_fault(study, tmp_path):
    launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
    with launcher.start(eagle3(2)) as session:
        server = psutil.Process(launcher.processes[0].pid)
        server.terminate()
        while server.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.02)
        with pytest.raises(RunnerError) as caught:
            session.measure(POINT)
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("server_ended", "host")


def test_setting_outside_of_the_launch_is_refused(study, tmp_path):
    launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
    with launcher.start(eagle3(2), (Setting(1), Setting(2))) as session:
        with pytest.raises(RunnerError) as caught:
            session.apply(Setting(9))
        assert (caught.value.failure.kind, caught.value.failure.phase) == ("switch_refused", "load")
        assert session.apply(Setting(1)).configuration.speculation == eagle3(1).speculation


def test_trees_are_switched_in_a_server_started_for_all(study, tmp_path):
    launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
    shapes = ((2, 6), (3, 4))
    with launcher.start(eagle3(2, 2, 6), [Setting(*shape) for shape in shapes]) as session:
        started = session.resolved.configuration.speculation
        assert started == eagle3(3, 2, 6).speculation, "neither has room for the other"
        lengths = {}
        for shape in shapes:
            resolved = session.apply(Setting(*shape)).configuration
            assert resolved.speculation == eagle3(shape[0], 2, shape[1]).speculation
            window = session.measure(POINT)
            codes = {reason.split(":")[0] for reason in window.invalid}
            assert not codes & {"setting_not_in_force", "acceptance_counts", "accept_length"}
            lengths[shape] = window.accept_length
        assert lengths[2, 6] != lengths[3, 4]
        with pytest.raises(RunnerError) as caught:
            session.apply(Setting(2))
        assert (
            "did not switch to 2 draft steps: the server still runs 3"
            in caught.value.failure.message
        )


def test_port_of_another_process_is_refused(study, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("runners.sglang.process_runner.free_port_block", lambda: port)
        launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
        with pytest.raises(RunnerError) as caught:
            launcher.start(eagle3(2))
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("port_taken", "host")
    launcher.assert_nothing_left()


def test_another_server_on_the_port_is_not_accepted(study, tmp_path, monkeypatch):
    """The other answers /health and /generate well, and ours has reported that it is ready."""
    launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
    with launcher.start(eagle3(2)):
        monkeypatch.setattr(
            "runners.sglang.process_runner.free_port_block", lambda: launcher.processes[0].port
        )
        second = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
        with pytest.raises(RunnerError) as caught:
            second.start(eagle3(5))
        failure = caught.value.failure
        assert (failure.kind, failure.fault) == ("port_taken", "host")
        second.assert_nothing_left()


def test_prefix_server_is_identified_by_model_name(study, tmp_path):
    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path)
    runner.environment = CommandPrefix(("nice", "-n", "0"), sys.executable)
    launcher = Launcher(runner, tmp_path)
    with launcher.start(eagle3(2)) as session:
        command = launcher.commands[0]
        assert command.argv[:4] == ("nice", "-n", "0", "env")
        assert session.resolved.server_info["served_model_name"] == f"tuner-{launcher.marks[0]}"
        assert session.resolved.configuration.speculation == eagle3(2).speculation
        assert session.resolved.configuration.env == (), "not seen, so not read back"
        assert session.measure(POINT).output_tok_s > 0
    launcher.assert_nothing_left()


def test_prefix_to_another_node_uses_the_studys_host(study, tmp_path):
    server = study.server.model_copy(update={"flags": study.server.flags | {"host": "127.0.0.2"}})
    study = study.model_copy(update={"server": server})
    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path)
    runner.environment = CommandPrefix(("/usr/bin/nohup",), sys.executable)
    launcher = Launcher(runner, tmp_path)
    with launcher.start(eagle3(2)) as session:
        argv = launcher.commands[0].argv
        assert argv[argv.index("--host") + 1] == "127.0.0.2"
        assert session.resolved.server_info["host"] == "127.0.0.2"
        assert session.measure(POINT).output_tok_s > 0
    launcher.assert_nothing_left()


# Starts the rest of the command as docker does: elsewhere, and not ended by the prefix's own end.
DETACHING = """
import os, pathlib, subprocess, sys, time
folder, seen, *command = sys.argv[1:]
environ = {k: v for k, v in os.environ.items() if k != "TUNER_LAUNCH"}
if seen == "unseen":
    command = [word for word in command if not word.startswith("TUNER_LAUNCH=")]
hidden = subprocess.Popen(command, env=environ, start_new_session=True)
pathlib.Path(folder, "hidden").write_text(str(hidden.pid))
time.sleep(60)
"""


def test_failed_start_reports_a_server_left_behind_a_prefix(study, tmp_path, monkeypatch):
    monkeypatch.setattr("runners.sglang.session._PORT_FREE_S", 0.2)
    timeouts = StartTimeouts(phases=(), floor_s=5.0)
    how = {"kind": "hang", "phase": "warmup"}
    runner = misbehaving(study, tmp_path, timeouts=timeouts, **how)
    prefix = (sys.executable, "-c", DETACHING, str(tmp_path), "unseen")
    runner.environment = CommandPrefix(prefix, sys.executable)
    try:
        with pytest.raises(RunnerError) as caught:
            Launcher(runner, tmp_path).start(eagle3(2))
        failure = caught.value.failure
        assert (failure.kind, failure.phase, failure.fault) == ("port_left", "stop", "host")
        assert "ready_timeout" in str(caught.value.__context__)
    finally:
        os.kill(int((tmp_path / "hidden").read_text()), signal.SIGKILL)


def test_server_that_outlives_its_prefix_is_found_by_mark(study, tmp_path, monkeypatch):
    monkeypatch.setattr("runners.sglang.session.GRACE_S", 0.5)
    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path)
    prefix = (sys.executable, "-c", DETACHING, str(tmp_path), "seen")
    runner.environment = CommandPrefix(prefix, sys.executable)
    launcher = Launcher(runner, tmp_path)
    with launcher.start(eagle3(2)):
        hidden = psutil.Process(int((tmp_path / "hidden").read_text()))
        assert os.getsid(hidden.pid) == hidden.pid != launcher.processes[0].pid
    assert not hidden.is_running() or hidden.status() == psutil.STATUS_ZOMBIE
    launcher.assert_nothing_left()


@pytest.mark.parametrize(
    ("number", "fault"), [(errno.ENOENT, "study"), (errno.ENOMEM, "host"), (errno.ENOSPC, "host")]
)
def test_a_process_that_cannot_be_started(study, tmp_path, monkeypatch, number, fault):
    def refuse(*_arguments, **_more):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("subprocess.Popen", refuse)
    with pytest.raises(RunnerError) as caught:
        Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path).start(PLAIN)
    failure = caught.value.failure
    assert (failure.kind, failure.fault) == ("not_started", fault)
    assert os.strerror(number) in failure.message


def test_a_trial_listens_on_loopback_without_the_studys_keys_and_tls(study, tmp_path, intent):
    own = {"host": "203.0.113.7", "port": 8000, "api-key": "sk-1", "ssl-keyfile": "none.pem"}
    server = study.server.model_copy(update={"flags": {**study.server.flags, **own}})
    runner = SimulatedRunner(study.model_copy(update={"server": server}), seed=0, log_dir=tmp_path)
    seen = []
    with runner.start(intent(eagle3(2)), lambda process, command: seen.append((process, command))):
        process, command = seen[0]
        given = command.argv
        assert given[given.index("--host") + 1] == "127.0.0.1"
        assert given[given.index("--port") + 1] == str(process.port) != "8000"
        assert not {"--api-key", "sk-1", "--ssl-keyfile"} & set(given)
        # Whoever has no key is answered.
        assert read_server_info(f"http://127.0.0.1:{process.port}")["api_key"] is None
    exported = runner.command(eagle3(2)).argv
    assert exported[exported.index("--host") + 1] == "203.0.113.7"
    assert exported[exported.index("--port") + 1] == "8000"


def test_interrupt_during_start_leaves_no_process(study, tmp_path, intent):
    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path)
    wanted = intent(eagle3(2))

    def interrupt(_progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.start(wanted, lambda *_: None, interrupt)
    assert not marked_pids(wanted.mark)


def test_interrupt_right_after_fork_leaves_no_process(study, tmp_path, intent, monkeypatch):
    """Between the fork and the first line that knows the process: its mark has to do."""

    def interrupt(_self) -> float:
        raise KeyboardInterrupt

    wanted = intent(eagle3(2))
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "create_time", interrupt)
        with pytest.raises(KeyboardInterrupt):
            SimulatedRunner(study, seed=0, log_dir=tmp_path).start(wanted, lambda *_: None)
    assert not marked_pids(wanted.mark)


def test_end_leftover_ends_a_server_that_is_measured(study, tmp_path):
    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path)
    launcher = Launcher(runner, tmp_path)
    session = launcher.start(eagle3(2))
    killer = threading.Timer(0.2, runner.end_leftover, [launcher.processes[0]])
    killer.start()

    def measure_for_ever() -> None:
        while True:
            session.measure(POINT)

    with pytest.raises(RunnerError):
        measure_for_ever()
    killer.join()
    session.close()
    launcher.assert_nothing_left()


def test_leftovers_of_a_killed_tuner_are_ended(study, tmp_path):
    """A tuner that is killed with -9 while its server runs, and the next one that cleans up."""
    script = (
        "import sys\n"
        "from runners.registry import make_runner\n"
        "from runners.conformance import Launcher\n"
        "from search_spaces.study_file.load import parse_study\n"
        "from search_spaces.configuration import Configuration\n"
        "from pathlib import Path\n"
        "study = parse_study(sys.stdin.read(), 'quick')\n"
        "logs = Path(sys.argv[1])\n"
        "launcher = Launcher(make_runner('simulated', study, seed=0, log_dir=logs), logs)\n"
        "launcher.start(Configuration())\n"
        "p = launcher.processes[0]\n"
        "print(p.pid, p.started, p.mark, p.port, p.host, flush=True)\n"
        "import time; time.sleep(60)\n"
    )
    tuner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert tuner.stdin is not None
        assert tuner.stdout is not None
        tuner.stdin.write(study.text)
        tuner.stdin.close()
        pid, started, mark, port, host = tuner.stdout.readline().split()
    finally:
        tuner.kill()
        tuner.wait()
        tuner.stdout.close()
    assert marked_pids(mark)
    from results.records import ProcessIdentity

    left = ProcessIdentity(int(pid), float(started), mark, int(port), host)
    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path)
    assert int(pid) in runner.end_leftover(left)
    assert not marked_pids(mark)
    assert runner.end_leftover(left) == ()


def test_unsupported_draft_tp_is_refused(study, tmp_path, intent):
    from dataclasses import replace

    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path)
    assert not isinstance(runner, DraftPlacement)
    with pytest.raises(RunnerError) as caught:
        runner.start(intent(replace(eagle3(2), draft_tp=1)), lambda *_: None)
    assert caught.value.failure.kind == "unsupported_draft_tp"
    # Today's command at half the study's tp-size: its draft has that, too.
    half = replace(eagle3(2), draft_tp=4, flags=(("tp-size", 4),))
    with runner.start(intent(half), lambda *_: None) as session:
        assert session.resolved.configuration.draft_tp == 4
