"""Loading of the plugin: nothing without variables, otherwise ready or refused."""

from __future__ import annotations

import signal

import pytest

from runners.plugin.inside_sglang.tuner_sglang_plugin import asked_for
from runners.plugin.inside_sglang.tuner_sglang_plugin.hot_switch import HotSwitch
from runners.plugin.inside_sglang.tuner_sglang_plugin.log import EXIT_CODE

from .conftest import CHAIN, HOT_SWITCH, MARK, PLUGIN
from .other_plugin import write_plugin

pytestmark = pytest.mark.slow

CLOCK = {"TUNER_CYCLE_CLOCK": "1"}

LOOK = """
import sys
from sglang.srt.plugins.hook_registry import HookRegistry
told += [sorted(HookRegistry.hooks), sorted(n for n in sys.modules if "tuner_sglang" in n)]
"""


def test_without_variables_nothing_is_hooked_or_imported(launch):
    server = launch(LOOK)
    assert server.code == 0, server.log
    assert server.lines() == []
    hooks, modules = server.told["scheduler"]
    assert hooks == []
    assert modules == ["tuner_sglang_plugin"]


def test_clock_variable_0_turns_the_clock_off(monkeypatch):
    for value in ("", "0"):
        monkeypatch.setenv("TUNER_CYCLE_CLOCK", value)
        assert not asked_for()
    monkeypatch.setenv("TUNER_CYCLE_CLOCK", "1")
    assert asked_for()


def test_invalid_clock_variable_is_refused(launch):
    server = launch(env={"TUNER_CYCLE_CLOCK": "on"})
    assert server.code == EXIT_CODE
    assert "REFUSED clock: TUNER_CYCLE_CLOCK is 'on', neither 1 nor 0" in server.log


def test_only_schedulers_are_hooked(launch):
    """In the main process and the detokenizer the plugin imports nothing of SGLang."""
    hooked, bare = launch(LOOK, env=CLOCK), launch(paths=())
    assert hooked.lines() == [
        "tuner_sglang_plugin: ready rank=0/1 sglang=0.5.23 hot_switch=off clock=on"
    ]
    assert len(hooked.told["scheduler"][0]) == 6
    assert hooked.told["detokenizer"] == bare.told["detokenizer"]
    assert hooked.told["main"] == bare.told["main"]


@pytest.mark.parametrize("asked", [HOT_SWITCH, CLOCK], ids=["hot_switch", "clock"])
def test_unverified_version_is_refused_before_schedulers_start(launch, asked):
    server = launch(version="0.5.24", env=asked)
    assert server.code == EXIT_CODE
    name = "hot_switch" if asked is HOT_SWITCH else "clock"
    assert server.log == (
        f"tuner_sglang_plugin: REFUSED {name}: this is SGLang 0.5.24,"
        " and it was verified with 0.5.17, 0.5.23 only\n"
    )


@pytest.mark.parametrize("steps", ["", "1,x", "1,,2", "-1", "1.5", "2/", "/4", "2/x"])
def test_invalid_steps_are_refused(monkeypatch, capsys, steps):
    monkeypatch.setenv("TUNER_LAUNCH", MARK)
    with pytest.raises(SystemExit) as ended:
        HotSwitch.from_environment(steps)
    assert ended.value.code == EXIT_CODE
    assert f"REFUSED hot_switch: {steps!r} is not a list" in capsys.readouterr().err


def test_missing_mark_is_refused(launch):
    server = launch(env={"TUNER_SWITCHABLE_STEPS": "1,2,5"})
    assert server.code == EXIT_CODE
    assert "REFUSED hot_switch: TUNER_LAUNCH is not set" in server.log


def test_changed_signature_ends_the_server(launch):
    server = launch(env=HOT_SWITCH | {"FAKE_CHANGED": "apply_runtime_state"})
    assert server.code not in {0, None}
    assert (
        "tuner_sglang_plugin: REFUSED hot_switch:"
        " sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.apply_runtime_state is"
        " (self, state, stream=), and it was verified as (self, state)"
    ) in server.lines()
    assert f"the scheduler died with code {EXIT_CODE}" in server.log


def test_missing_function_ends_the_server(launch, tmp_path):
    body = """
        from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2
        del EAGLEWorkerV2.apply_runtime_state
        """
    server = launch(env=HOT_SWITCH, paths=(write_plugin(tmp_path, body), PLUGIN))
    assert server.code != 0
    assert "apply_runtime_state cannot be found: AttributeError" in server.log


def test_hook_that_does_not_apply_ends_the_server(launch, tmp_path):
    """Another plugin patched the target first, so SGLang silently skips our hook."""
    body = """
        from sglang.srt.plugins.hook_registry import HookRegistry
        target = "sglang.srt.model_executor.model_runner.ModelRunner.forward"
        HookRegistry.register(target, lambda result, *_, **__: None)
        HookRegistry.apply_hooks()
        """
    server = launch(env=CLOCK, paths=(write_plugin(tmp_path, body), PLUGIN))
    assert server.code != 0
    assert (
        "REFUSED clock: the hook on"
        " sglang.srt.model_executor.model_runner.ModelRunner.forward did not take effect"
    ) in server.log


def test_server_without_draft_worker_ends(launch):
    server = launch(arguments={"speculative_algorithm": None}, env=HOT_SWITCH)
    assert server.code != 0
    (line,) = server.lines()
    assert line.startswith("tuner_sglang_plugin: REFUSED hot_switch: no worker of EAGLE")


def test_clock_refuses_unsupported_devices(launch):
    server = launch(env=CLOCK | {"FAKE_DEVICE": "npu"})
    assert server.code != 0
    assert "REFUSED clock: the device is npu" in server.log


def test_clock_refuses_pipeline_parallelism(launch):
    server = launch(arguments=CHAIN | {"pp_size": 2}, env=CLOCK)
    assert server.code != 0
    assert "REFUSED clock: --pp-size is 2" in server.log


@pytest.mark.parametrize(
    ("env", "ended_by"),
    [({}, signal.SIGQUIT), ({"FAKE_IN_BACKGROUND": "1"}, signal.SIGKILL)],
    ids=["in_front", "in_background"],
)
def test_waiting_data_parallel_controller_ends(launch, env, ended_by):
    """With data parallelism SGLang does not check that the scheduler lives (0.5.17, 0.5.23)."""
    server = launch(arguments=CHAIN | {"dp_size": 2}, env=CLOCK | {"FAKE_DEVICE": "npu"} | env)
    assert "REFUSED clock: the device is npu" in server.log
    assert f"the scheduler died with code {-ended_by}" in server.log
    assert server.code not in {0, None}


def test_failing_readiness_check_is_a_refusal(launch):
    """The exception would look like an error of SGLang."""
    server = launch(env=CLOCK | {"FAKE_DEVICE": "cuda"})  # the stand-in's torch has no events
    assert server.code != 0
    assert "REFUSED clock: it is not ready: AttributeError: " in server.log
    assert f"the scheduler died with code {EXIT_CODE}" in server.log
