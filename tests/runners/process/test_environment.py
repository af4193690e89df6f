"""Server environments: interpreters, prefixes and facts."""

from __future__ import annotations

import json
import sys

import pytest

from runners.base import LaunchCommand
from runners.process.environment import (
    CommandPrefix,
    EnvironmentUnusableError,
    LocalEnvironment,
    served_name,
    server_environment,
)

pytestmark = pytest.mark.slow


def test_interpreter_order_is_study_variable_tuner(study, monkeypatch):
    monkeypatch.delenv("TUNER_SGLANG_PYTHON", raising=False)
    assert server_environment(study).python == sys.executable
    assert server_environment(study, default_python="python").python == "python"
    monkeypatch.setenv("TUNER_SGLANG_PYTHON", "/opt/sglang/bin/python")
    assert server_environment(study).python == "/opt/sglang/bin/python"
    server = study.server.model_copy(update={"python": "/own/python", "prefix": ("srun", "-n1")})
    environment = server_environment(study.model_copy(update={"server": server}))
    assert environment.python == "/own/python"
    assert isinstance(environment, CommandPrefix)
    assert environment.prefix == ("srun", "-n1")


def test_local_servers_are_identified_by_process():
    environment = LocalEnvironment(sys.executable)
    command = LaunchCommand(("python",), (("A", "1"),), ("B",))
    assert environment.wrap(command) == command
    assert environment.sees_processes
    assert environment.ownership_flags("m") == ()


def test_prefix_passes_variables_by_env_and_identifies_servers_by_name():
    environment = CommandPrefix(("docker", "exec", "sgl"), "python3")
    command = LaunchCommand(("python3", "-m", "m"), (("A", "1"),), ("B",))
    assert environment.wrap(command).argv == (
        *("docker", "exec", "sgl", "env", "-u", "B", "A=1"),
        *("python3", "-m", "m"),
    )
    assert environment.wrap(LaunchCommand(("python3",))).argv == (
        *("docker", "exec", "sgl"),
        "python3",
    )
    assert not environment.sees_processes
    assert environment.ownership_flags("m") == ("--served-model-name", served_name("m"))


@pytest.mark.parametrize(
    ("prefix", "host", "expected"),
    [
        ([], "10.0.0.7", "127.0.0.1"),
        (["numactl", "-m", "0"], "10.0.0.7", "127.0.0.1"),
        (["ssh", "node7"], "10.0.0.7", "10.0.0.7"),
        (["srun", "-w", "node7"], "node7", "node7"),
        (["ssh", "node7"], "fd00::7", "fd00::7"),
        (["docker", "exec", "sgl"], "0.0.0.0", "127.0.0.1"),
        (["docker", "exec", "sgl"], None, "127.0.0.1"),
    ],
)
def test_trial_host_is_loopback_or_the_prefix_node(study, prefix, host, expected):
    flags = study.server.flags | ({} if host is None else {"host": host})
    server = study.server.model_copy(update={"prefix": tuple(prefix), "flags": flags})
    study = study.model_copy(update={"server": server})
    assert server_environment(study).trial_host(study) == expected


def test_helpers_run_in_the_server_environment():
    environment = CommandPrefix(("env", "T_INSIDE=yes"), sys.executable)
    script = "import os, sys; print(os.environ['T_INSIDE'], sys.stdin.read())"
    assert environment.run(["-c", script], stdin="given").stdout.split() == ["yes", "given"]


def test_facts_find_sglang_gpus_and_paths(tmp_path):
    facts = LocalEnvironment(sys.executable).facts((str(tmp_path), str(tmp_path / "none")))
    assert facts.missing_paths == (str(tmp_path / "none"),)
    assert facts.gpus >= 0


def test_sglang_is_found_by_its_metadata(tmp_path):
    info = tmp_path / "sglang-0.5.23.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n")
    environment = CommandPrefix(("env", f"PYTHONPATH={tmp_path}"), sys.executable)
    assert environment.facts().sglang_version == "0.5.23"
    isolated = CommandPrefix((sys.executable, "-c", _WITHOUT_SITE), sys.executable)
    assert isolated.facts().sglang_version is None


# Runs the rest of the command with an interpreter that sees no site-packages.
_WITHOUT_SITE = (
    "import subprocess, sys; p, *rest = sys.argv[1:];"
    "sys.exit(subprocess.call([p, '-I', '-S', *rest]))"
)


@pytest.mark.parametrize("python", ["/no/such/python", "false", "echo"])
def test_missing_interpreter_is_an_error(python):
    environment = LocalEnvironment(python)
    with pytest.raises(EnvironmentUnusableError, match=python):
        environment.facts()


def test_interpreter_output_may_be_invalid_utf8():
    environment = LocalEnvironment(sys.executable)
    done = environment.run(["-c", "import os; os.write(1, b'\\xff'); os.write(2, b'\\xfe')"])
    assert (done.stdout, done.stderr) == ("\ufffd", "\ufffd")


def test_hung_interpreter_times_out():
    environment = LocalEnvironment(sys.executable)
    with pytest.raises(EnvironmentUnusableError, match="did not end"):
        environment.run(["-c", "import time; time.sleep(30)"], timeout_s=0.2)


def test_facts_ignore_earlier_output(tmp_path):
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\necho "welcome"\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    assert json.dumps(LocalEnvironment(str(script)).facts().gpus)


def test_timeout_message_omits_the_script():
    with pytest.raises(EnvironmentUnusableError, match=r"^\S+ -c \.\.\. did not end within 1 s$"):
        LocalEnvironment(sys.executable).run(["-c", "import time\ntime.sleep(600)"], timeout_s=1)
