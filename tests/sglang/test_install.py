"""Installing the real SGLang for a CPU."""

from __future__ import annotations

import subprocess

import pytest

from runners.process.environment import LocalEnvironment
from runners.sglang_cpu import install

pytestmark = pytest.mark.sglang


def test_second_installation_does_nothing(cpu_server):
    said: list[str] = []
    server = install(cpu_server.root, said.append)
    assert said == []
    assert server == cpu_server
    assert {path.name for path in server.models.iterdir()} == {"tiny", "noisy", "draft", "eagle3"}


def test_interpreter_finds_sglang_and_the_kernels(cpu_server):
    facts = LocalEnvironment(str(cpu_server.python)).facts((str(cpu_server.models / "tiny"),))
    assert facts.sglang_version == "0.5.23"
    assert facts.missing_paths == ()
    found = "import importlib.util as u; print(u.find_spec('sgl_kernel').origin)"
    done = subprocess.run(
        [cpu_server.python, "-c", found], capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout.startswith(str(cpu_server.root))
