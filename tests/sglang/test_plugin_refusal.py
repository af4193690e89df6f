"""What the plugin refuses ends the real server, from the main process and from a scheduler."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from runners.plugin.inside_sglang.tuner_sglang_plugin.saying import EXIT_CODE
from runners.plugin.package import FOLDER
from runners.process.ports import free_port_block
from runners.sglang.command import sglang_command

from .servers import KINDS

pytestmark = pytest.mark.timeout(1000)  # a start may take minutes where others have the cores


def ended(study, **variables: str) -> tuple[int, str]:
    """Starts the server of kind `standalone` (3 steps) by its command; its code and its log."""
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
def test_the_main_process_ends_before_anything_is_loaded(tiny):
    code, log = ended(tiny, TUNER_SWITCHABLE_STEPS="1,3")
    assert code == EXIT_CODE
    (line,) = refusals(log)
    assert line.startswith("tuner_sglang_plugin: REFUSED hot_switch: TUNER_LAUNCH is not set")


@pytest.mark.sglang
def test_a_schedulers_refusal_ends_the_server(tiny):
    """On a CPU without `--disable-cuda-graph`, known only once the draft is loaded."""
    code, log = ended(tiny, TUNER_SWITCHABLE_STEPS="1,3", TUNER_LAUNCH="a-mark")
    assert code != 0
    (line,) = refusals(log)
    assert line.startswith("tuner_sglang_plugin: REFUSED hot_switch: on a CPU it needs")
