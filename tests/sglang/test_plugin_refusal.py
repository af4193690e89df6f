"""A refusal of the plugin ends the real server, in the main process and in a scheduler."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from runners.plugin.inside_sglang.tuner_sglang_plugin.log import EXIT_CODE
from runners.plugin.package import FOLDER
from runners.process.ports import free_port_block
from runners.sglang.command import sglang_command

from .servers import KINDS

pytestmark = pytest.mark.timeout(1000)  # a start may take minutes on a busy machine


def ended(study, **variables: str) -> tuple[int, str]:
    """Start a server of kind `standalone` by its command; return exit code and log."""
    asked = KINDS["standalone"].configuration
    command = sglang_command(study, asked, python=study.server.python, port=free_port_block())
    process = subprocess.Popen(
        command.argv,
        env=command.environment() | {"PYTHONPATH": str(FOLDER)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        log, _ = process.communicate(timeout=900)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, log


def refusals(log: str) -> list[str]:
    return [line for line in log.splitlines() if line.startswith("tuner_sglang_plugin: ")]


@pytest.mark.sglang_long
def test_main_process_refuses_before_loading(tiny):
    code, log = ended(tiny, TUNER_SWITCHABLE_STEPS="1,3")
    assert code == EXIT_CODE
    (line,) = refusals(log)
    assert line.startswith("tuner_sglang_plugin: REFUSED hot_switch: TUNER_LAUNCH is not set")


@pytest.mark.sglang
def test_refusal_of_a_scheduler_ends_the_server(tiny):
    """A CPU without `--disable-cuda-graph` is refused after the draft is loaded."""
    code, log = ended(tiny, TUNER_SWITCHABLE_STEPS="1,3", TUNER_LAUNCH="a-mark")
    assert code != 0
    (line,) = refusals(log)
    assert line.startswith("tuner_sglang_plugin: REFUSED hot_switch: on a CPU it needs")
