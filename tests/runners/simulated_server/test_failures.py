"""Starts that fail, and ends of servers."""

import json
import os
import signal
import subprocess
import sys

import pytest

from runners.simulated_server.launch.environment import read_environment
from runners.simulated_server.launch.flags import parse_flags, resolve
from runners.simulated_server.launch.speculative_flags import FlagsRefusedError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("flags", "last_line"),
    [
        ([], "the following arguments are required: --model-path"),
        (["--tp-size", "many"], "argument --tp-size/--tensor-parallel-size: invalid int value"),
    ],
)
def test_wrong_usage_exits_2(flags, last_line, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_flags(flags)
    assert ended.value.code == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith(f"sglang serve: error: {last_line}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TUNER_SIM_TIME_SCALE", "0"),
        ("TUNER_SIM_TIME_SCALE", "nan"),
        ("TUNER_SIM_TIME_SCALE", "inf"),
        ("TUNER_SIM_SEED", "x"),
        ("TUNER_SIM_SEED", "inf"),
        ("TUNER_SWITCHABLE_STEPS", "1;2"),
        ("TUNER_SWITCHABLE_STEPS", "1,,2"),
        ("TUNER_SWITCHABLE_STEPS", " "),
        ("TUNER_SWITCHABLE_STEPS", "1, 5"),
        ("TUNER_CYCLE_CLOCK", "on"),
        ("TUNER_SIM_MISBEHAVE", '[{"kind": "sulk"}]'),
        ("TUNER_SIM_MISBEHAVE", '{"kind": "jit"}'),
        ("TUNER_SIM_MISBEHAVE", "5"),
    ],
)
def test_an_invalid_variable_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        read_environment({name: value})


def test_a_wrong_environment_exits_2():
    done = subprocess.run(
        [sys.executable, "-m", "runners.simulated_server", "--model-path", "m"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"TUNER_SIM_PROFILE": "nosuch"},
    )
    assert done.returncode == 2
    assert "profile 'nosuch' does not exist" in done.stderr.splitlines()[-1]


def test_an_algorithm_without_a_model_is_refused():
    with pytest.raises(FlagsRefusedError, match="the simulated server has no model of DSPARK"):
        resolve({"model_path": "m", "speculative_algorithm": "DSPARK"})


def test_never_ready_while_the_warm_up_hangs(start):
    trouble = [{"kind": "hang", "phase": "warmup"}]
    served = start(env={"TUNER_SIM_MISBEHAVE": json.dumps(trouble)})
    served.wait_log("Uvicorn running on")
    assert served.client.get("/health").status_code == 503
    assert served.client.get("/server_info").json()["status"] == "starting"


def test_sigint_ends_an_idle_server_cleanly(start):
    served = start().wait_ready()
    served.process.send_signal(signal.SIGINT)
    assert served.exit_status() == 0


def test_an_internal_error_ends_the_server(quick_profile):
    broken = (
        "from runners.simulated_server import __main__\n"
        "from runners.simulated_server.engine import engine\n"
        "async def run(_):\n"
        "    raise RuntimeError('no such thing')\n"
        "engine.Engine.run = run\n"
        "__main__.main(['--model-path', 'm', '--port', '0'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"TUNER_SIM_PROFILE": str(quick_profile)},
    )
    assert done.returncode == 1
    assert "internal error of the simulation" in done.stderr
    assert "RuntimeError: no such thing" in done.stderr
