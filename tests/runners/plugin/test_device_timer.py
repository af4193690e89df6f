"""SGLang's device timer, which replaces the plugin's clock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from results.records import LaunchIntent
from runners.load.prompts.rendering import IdentityRenderer
from runners.plugin import device_timer
from runners.plugin.device_timer import has_timer, seconds_by_part
from runners.sglang.runner import SGLangRunner
from search_spaces.configuration import Configuration, Speculation
from search_spaces.study_file.load import parse_study
from search_spaces.workload import OperatingPoint

from ..fake_sglang import SERVES, write_sglang

pytestmark = pytest.mark.slow

PAGE = """\
# HELP sglang:forward_execution_seconds_total Total time that GPU is busy
# TYPE sglang:forward_execution_seconds_total counter
sglang:forward_execution_seconds_total{category="extend",tp_rank="0"} 9.0
sglang:forward_execution_seconds_total{category="eagle_draft",tp_rank="0"} 1.5
sglang:forward_execution_seconds_total{category="eagle_draft_extend",tp_rank="0"} 0.25
sglang:forward_execution_seconds_total{category="target_verify",tp_rank="0"} 20.0
sglang:forward_execution_seconds_total{category="target_verify",tp_rank="1"} 21.0
sglang:forward_execution_seconds_total{category="decode"} 4.0
sglang:dp_cooperation_forward_execution_seconds_total{category="decode"} 99.0
"""


def test_parts_are_summed_on_the_first_rank():
    assert seconds_by_part(PAGE) == {"draft": 1.5, "draft_extend": 0.25, "verify": 24.0}
    assert seconds_by_part("") == {}


@pytest.mark.parametrize(
    ("version", "device", "had"),
    [
        ("0.5.17", None, True),
        ("0.5.20", "cuda", True),
        ("0.5.23", "cpu", False),
        ("0.5.9", None, False),
        ("0.6.0", None, False),
        ("unknown", None, False),
    ],
)
def test_versions_and_devices_with_a_device_timer(version, device, had):
    assert has_timer(version, device) is had


class _Runner(SGLangRunner):
    """Runner of a package that claims to be SGLang and serves simulations."""

    simulated = True

    def renderer(self):
        return IdentityRenderer()


def runner_of(tmp_path, python=sys.executable):
    """Runner whose servers this interpreter starts."""
    site = write_sglang(tmp_path, SERVES)
    root = Path(device_timer.__file__).parents[1]
    study = parse_study(
        "study: s\nmodel: {path: org/model, draft: org/draft}\n"
        f"server: {{python: {python}, flags: {{tp-size: 2}}, env: {{"
        f"PYTHONPATH: '{site}:{root}', TUNER_SIM_PROFILE: equal, TUNER_SIM_TIME_SCALE: 20}}}}\n"
        "space: {speculation: [{algorithm: none},\n"
        "                      {algorithm: EAGLE3, num_steps: [2, 3], topk: [1]}]}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 24, requests: 8}\nbudget: {launches: 2}\n",
        "s",
    )
    return _Runner(study, seed=0, log_dir=tmp_path / "logs")


@pytest.fixture
def runner(tmp_path, with_sglang, monkeypatch):
    """Runner of a version that the plugin was not verified with."""
    monkeypatch.setenv("TUNER_DEVICE_TIMER", "1")
    with_sglang("0.5.20")
    monkeypatch.delenv("PYTHONPATH")
    return runner_of(tmp_path)


@pytest.mark.parametrize("speculation", [Speculation(), Speculation("EAGLE3", 2, 1, 3)], ids=str)
def test_device_timer_replaces_the_clock(runner, tmp_path, speculation):
    configuration = Configuration.of(speculation, draft_tp=2 if speculation.enabled else None)
    intent = LaunchIntent(configuration, (), "mark", str(tmp_path / "logs" / "one.log"))
    commands = []
    with runner.start(intent, lambda _, command: commands.append(command)) as session:
        measurement = session.measure(OperatingPoint(1))
    (command,) = commands
    assert command.argv[-1] == "--enable-metrics"
    assert dict(command.env)["SGLANG_ENABLE_METRICS_DEVICE_TIMER"] == "1"
    exported = runner.command(configuration)
    assert "--enable-metrics" not in exported.argv
    assert "SGLANG_ENABLE_METRICS_DEVICE_TIMER" not in dict(exported.env)
    assert measurement.cycle is not None
    assert measurement.cycle.source == "device_timer"
    (batch,) = measurement.cycle.batches
    assert batch.size == 0
    forwards = {"draft", "draft_extend", "verify"} if speculation.enabled else {"verify"}
    assert set(batch.parts) == forwards
    verify = batch.parts["verify"]
    assert verify.median_s is verify.p95_s is verify.graph_share is None
    assert batch.cycle.total_s == pytest.approx(sum(p.total_s for p in batch.parts.values()))
    # Simulated seconds, not a twentieth of them: near the time of the answers.
    took = sum(sample.e2e_s - sample.ttft_s for sample in measurement.samples)
    assert 0.2 * took < batch.cycle.total_s < 5.0 * took


def test_missing_capabilities_are_reported(runner, intent):
    runner.launch_command(intent(Configuration()), host="127.0.0.1", port=20010)
    switch, clock, timer = runner.remarks()
    assert "needs a launch: it was verified with SGLang 0.5.17, 0.5.23" in switch
    assert clock.endswith("this is 0.5.20")
    assert (
        timer == "SGLang's device timer replaces the plugin's clock, as TUNER_DEVICE_TIMER requests"
    )


def test_device_timer_replaces_the_clock_after_a_launch_without_plugin(
    tmp_path, with_sglang, monkeypatch
):
    monkeypatch.setenv("TUNER_DEVICE_TIMER", "1")
    with_sglang("0.5.23")
    monkeypatch.delenv("PYTHONPATH")
    loses = tmp_path / "python"
    loses.write_text(f'#!/bin/sh\nunset TUNER_CYCLE_CLOCK\nexec {sys.executable} "$@"\n')
    loses.chmod(0o755)
    runner = runner_of(tmp_path, loses)
    sources = []
    for number, launched in enumerate((Configuration(), Configuration())):
        intent = LaunchIntent(launched, (), f"mark-{number}", str(tmp_path / "logs" / f"{number}"))
        with runner.start(intent, lambda *_: None) as session:
            cycle = session.measure(OperatingPoint(1, requests=2)).cycle
        sources.append(None if cycle is None else cycle.source)
    assert sources == [None, "device_timer"]
    lost, timer = runner.remarks()
    assert "does not report it" in lost
    assert (
        timer == "SGLang's device timer replaces the plugin's clock, as TUNER_DEVICE_TIMER requests"
    )


def test_device_timer_is_off_by_default(runner, intent, monkeypatch):
    monkeypatch.delenv("TUNER_DEVICE_TIMER")
    launched = runner.launch_command(intent(Configuration()), host="127.0.0.1", port=20010)
    assert "--enable-metrics" not in launched.argv
    assert device_timer.VARIABLE not in dict(launched.env)
    assert not any("device timer" in remark for remark in runner.remarks())


@pytest.mark.parametrize("own", [True, False])
def test_device_timer_variable_is_not_stored_as_the_servers(runner, own):
    set_by_us = {device_timer.VARIABLE: "1", "NCCL_PROTO": "LL"}
    env = {device_timer.VARIABLE: "1"} if own else {}
    found = runner.without_instruments(set_by_us, Configuration.of(Speculation(), env=env))
    assert found == (set_by_us if own else {"NCCL_PROTO": "LL"})
