"""Exported shell scripts: the shell starts exactly the command, with exactly its variables."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings

from tuner.exports.shell_script import write

from ...examples import examples
from .exported_servers import (
    SECRETS,
    TOOLS,
    caller_environment,
    environments,
    exported,
    flag_sets,
    removed,
    resolved,
    words_of,
)

STUB = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv, dict(os.environ)]))
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    """An interpreter that says how it was started."""
    path = tmp_path_factory.mktemp("stub") / "a python"
    path.write_text(STUB)
    path.chmod(0o755)
    return str(path)


def started(script, **env):
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env=caller_environment(**env),
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    return json.loads(done.stdout)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flag_sets, environments, removed)
def test_the_shell_starts_exactly_that(stub, flags, env, unset):
    server = exported(flags, env, unset, python=stub, secrets=True)
    argv, environ = started(write(server), **dict.fromkeys(unset, "1"), **SECRETS)
    assert argv == resolved(words_of(server))
    assert {name: environ[name] for name in env} == env
    assert environ["HF_TOKEN"] == SECRETS["HF_TOKEN"]
    assert not unset & set(environ)


@settings(max_examples=examples(10), deadline=None)
@given(flag_sets, environments, removed)
def test_shellcheck_finds_nothing(flags, env, unset):
    done = subprocess.run(
        [TOOLS / "shellcheck", "--shell=sh", "--severity=warning", "-"],
        input=write(exported(flags, env, unset, secrets=True)),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_a_secret_that_is_not_set_stops_it(stub):
    script = write(exported(python=stub, secrets=True))
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env=caller_environment(HF_TOKEN="x"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "SGLANG_API_KEY" in done.stderr
    assert "set it" in done.stderr
    assert not done.stdout


def test_signals_reach_the_server():
    commands = [c for c in write(exported()).splitlines() if not c.startswith(("#", " "))]
    assert len(commands) == 1
    assert commands[0].startswith("exec ")
