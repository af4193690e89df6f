"""Without the tuner's variables it is not there; what it is asked for is proven or refused."""

from __future__ import annotations

import pytest

from runners.inside_sglang.tuner_sglang_plugin.saying import EXIT_CODE

from .conftest import CHAIN, HOT_SWITCH, PLUGIN

CLOCK = {"TUNER_CYCLE_CLOCK": "1"}
VERSIONS = ("0.5.17", "0.5.23")

LOOK = """
import sys
from sglang.srt.plugins.hook_registry import HookRegistry
told += [sorted(HookRegistry.hooks), sorted(n for n in sys.modules if "tuner_sglang" in n)]
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_without_variables_nothing_is_hooked_and_nothing_is_imported(launch, version):
    server = launch(LOOK, version=version)
    assert server.code == 0, server.log
    assert server.lines() == []
    hooks, modules = server.told["scheduler"]
    assert hooks == []
    assert modules == ["tuner_sglang_plugin"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rank_says_that_it_is_ready_when_the_states_are_built(launch, version):
    server = launch(version=version, env=HOT_SWITCH | CLOCK)
    assert server.code == 0, server.log
    assert server.lines() == [
        f"tuner_sglang_plugin: ready rank=0/1 sglang={version} hot_switch=1,2,5 clock=on"
    ]


def test_the_clock_alone(launch):
    server = launch(env=CLOCK)
    assert server.lines() == [
        "tuner_sglang_plugin: ready rank=0/1 sglang=0.5.23 hot_switch=off clock=on"
    ]


def test_only_the_schedulers_are_hooked(launch):
    """The main process and the detokenizer import no module of SGLang for it."""
    hooked, bare = launch(env=HOT_SWITCH | CLOCK), launch(paths=())
    assert hooked.told["detokenizer"] == bare.told["detokenizer"]


@pytest.mark.parametrize("asked", [HOT_SWITCH, CLOCK], ids=["hot_switch", "clock"])
def test_a_version_that_was_not_verified_is_refused_before_schedulers_start(launch, asked):
    server = launch(version="0.5.24", env=asked)
    assert server.code == EXIT_CODE
    name = "hot_switch" if asked is HOT_SWITCH else "clock"
    assert server.log.splitlines() == [
        f"tuner_sglang_plugin: REFUSED {name}: this is SGLang 0.5.24,"
        " and it was verified with 0.5.17, 0.5.23 only"
    ]


@pytest.mark.parametrize("steps", ["1,x", "1,,2", "-1", "1.5"])
def test_steps_that_are_no_numbers_are_refused(launch, steps):
    server = launch(env=HOT_SWITCH | {"TUNER_SWITCHABLE_STEPS": steps})
    assert server.code == EXIT_CODE
    assert f"REFUSED hot_switch: the steps {steps!r}" in server.log


def test_without_a_mark_nobody_could_switch(launch):
    server = launch(env={"TUNER_SWITCHABLE_STEPS": "1,2,5"})
    assert server.code == EXIT_CODE
    assert "REFUSED hot_switch: TUNER_LAUNCH is not set" in server.log


def test_a_changed_signature_ends_the_server(launch):
    server = launch(env=HOT_SWITCH | {"FAKE_CHANGED": "apply_runtime_state"})
    assert server.code not in {0, None}
    assert (
        "tuner_sglang_plugin: REFUSED hot_switch:"
        " sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.apply_runtime_state is"
        " (self, state, stream=), and it was verified as (self, state)"
    ) in server.lines()
    assert f"the scheduler died with code {EXIT_CODE}" in server.log


def test_a_function_that_is_gone_ends_the_server(launch, tmp_path):
    """The clock asks for nothing of it: that works still."""
    other = tmp_path / "other"
    plugin(
        other,
        """
        from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2
        del EAGLEWorkerV2.apply_runtime_state
        """,
    )
    server = launch(env=HOT_SWITCH, paths=(other, PLUGIN))
    assert server.code != 0
    assert "apply_runtime_state cannot be found: AttributeError" in server.log
    assert launch(env=CLOCK, paths=(other, PLUGIN)).code == 0


def test_a_hook_that_does_not_apply_ends_the_server(launch, tmp_path):
    """Another plugin has patched the target before: SGLang passes over ours, and says nothing."""
    other = tmp_path / "other"
    plugin(
        other,
        """
        from sglang.srt.plugins.hook_registry import HookRegistry
        if "sglang.srt.managers.scheduler" in sys.modules and parent_process():
            target = "sglang.srt.model_executor.model_runner.ModelRunner.forward"
            HookRegistry.register(target, lambda result, *_, **__: None)
            HookRegistry.apply_hooks()
        """,
    )
    server = launch(env=CLOCK, paths=(other, PLUGIN))
    assert server.code != 0
    assert (
        "REFUSED clock: the hook on"
        " sglang.srt.model_executor.model_runner.ModelRunner.forward did not take effect"
    ) in server.log


def test_another_plugin_that_hooks_the_same_after_us_is_no_harm(launch, tmp_path):
    other = tmp_path / "other"
    plugin(
        other,
        """
        from sglang.srt.plugins.hook_registry import HookRegistry
        target = "sglang.srt.speculative.spec_utils.resolve_num_tokens_per_req"
        HookRegistry.register(target, lambda result, *_, **__: None)
        """,
    )
    assert launch(env=HOT_SWITCH | CLOCK, paths=(PLUGIN, other)).code == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"speculative_algorithm": None}, "no worker of EAGLE, EAGLE3, NEXTN or STANDALONE"),
        ({"speculative_algorithm": "FROZEN_KV_MTP"}, "the worker is a FrozenKVMTPWorkerV2"),
        ({"speculative_adaptive": True}, "--speculative-adaptive switches the steps itself"),
        ({"speculative_eagle_topk": 2}, "--speculative-eagle-topk is 2, and only chains"),
        ({"speculative_num_steps": 2}, "must be the largest of the candidates, 5"),
        ({"speculative_num_draft_tokens": 4}, "a chain of 5 has 6"),
        ({"enable_dp_attention": True}, "--enable-dp-attention is set"),
        ({"dp_size": 2}, "--dp-size is 2: its replicas are not told together"),
        ({"pp_size": 2}, "--pp-size is 2"),
        ({"enable_multi_layer_eagle": True}, "--enable-multi-layer-eagle is set"),
        ({"enable_two_batch_overlap": True}, "--enable-two-batch-overlap is set"),
        ({"enable_pdmux": True}, "--enable-pdmux is set"),
        ({"enable_hisparse": True}, "--enable-hisparse is set"),
        ({"disaggregation_mode": "decode"}, "--disaggregation-mode is decode"),
    ],
)
def test_a_server_that_cannot_be_switched_soundly_ends(launch, arguments, reason):
    server = launch(arguments=CHAIN | arguments, env=HOT_SWITCH)
    assert server.code != 0
    (line,) = server.lines()
    assert line.startswith("tuner_sglang_plugin: REFUSED hot_switch: ")
    assert reason in line


def test_the_clock_refuses_a_device_that_it_cannot_measure(launch):
    server = launch(env=CLOCK | {"FAKE_DEVICE": "npu"})
    assert server.code != 0
    assert "REFUSED clock: the device is npu" in server.log


def plugin(folder, body):
    """Another plugin, in a folder of its own."""
    import textwrap

    info = folder / "other_plugin-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other_plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nother = other_plugin:register\n")
    header = "import sys\nfrom multiprocessing import parent_process\n\ndef register():\n"
    code = textwrap.indent(textwrap.dedent(body), "    ")
    (folder / "other_plugin.py").write_text(header + code)
