"""What is said of SGLang where a launch is made cheaper, held to SGLang itself."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from runners.process.environment import LocalEnvironment
from runners.sglang.machine import read_machine
from runners.sglang.runner import SGLangRunner
from search_spaces.configuration import Configuration

if TYPE_CHECKING:
    from runners.sglang_cpu import CpuServer

_CACHES = """
import importlib.util, json, os, sys
spec = importlib.util.find_spec("sglang")
# `sglang/__init__` brings half of SGLang; this is the part of it that moves caches.
sys.path.insert(0, os.path.join(os.path.dirname(spec.origin), "srt"))
import environ
environ.redirect_third_party_caches()
print(json.dumps({**os.environ, "DG": environ.envs.SGLANG_DG_CACHE_DIR.get(),
                  "OWN": environ.envs.SGLANG_CACHE_DIR.get()}))
"""

_READ_AT_IMPORT = """
import os
names = set()
class_ = type(os.environ)
get, has = class_.__getitem__, class_.__contains__
class_.__getitem__ = lambda self, name: (names.add(name), get(self, name))[1]
class_.__contains__ = lambda self, name: (names.add(name), has(self, name))[1]
import sglang.srt.server_args, sglang.srt.plugins, sglang.srt.entrypoints.http_server
print("names", *sorted(map(str, names)))
"""


def ask(server: CpuServer, script: str) -> str:
    """The last line that a script prints in the server's environment."""
    env = {n: v for n, v in os.environ.items() if not n.endswith(("_CACHE_DIR", "_CACHE_PATH"))}
    done = subprocess.run(
        [str(server.python), "-c", script],
        env={**env, "SGLANG_USE_CPU_ENGINE": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.sglang
def test_caches_are_where_sglang_puts_them(cpu_server, monkeypatch):
    for name in [n for n in os.environ if n.endswith(("_CACHE_DIR", "_CACHE_PATH"))]:
        monkeypatch.delenv(name)
    its: dict[str, Any] = json.loads(ask(cpu_server, _CACHES))
    ours = read_machine(LocalEnvironment(str(cpu_server.python))).machine.caches
    assert ours["sglang"] == its["OWN"]
    assert ours["triton"] == its["TRITON_CACHE_DIR"]
    assert ours["inductor"] == its["TORCHINDUCTOR_CACHE_DIR"]
    assert ours["cuda"] == its["CUDA_CACHE_PATH"]
    assert ours["deep_gemm"] == its["DG"]
    assert ours["flashinfer"] == f"{its['FLASHINFER_WORKSPACE_BASE']}/.cache/flashinfer"


@pytest.mark.sglang_long
@pytest.mark.timeout(600)
def test_the_launchers_imports_read_no_variable_of_nccl(cpu_server):
    names = ask(cpu_server, _READ_AT_IMPORT).split()
    assert names[0] == "names"
    assert "SGLANG_USE_CPU_ENGINE" in names, "they are seen"
    assert [name for name in names if name.startswith("NCCL_")] == []


@pytest.mark.sglang_long
@pytest.mark.timeout(1200)
def test_a_prepared_launcher_serves_as_one_that_was_started(tiny, tmp_path, intent, monkeypatch):
    """Two launches of one configuration: the second one's imports were made during the first."""
    monkeypatch.setenv("TUNER_PREPARE_NEXT", "1")
    runner = SGLangRunner(tiny, seed=0, log_dir=tmp_path)
    infos, pids, environments = [], [], []
    point = tiny.workload.to_workload().points[0]
    try:
        for _ in range(2):
            wanted = intent(Configuration())
            with runner.start(wanted, lambda process, _: pids.append(process.pid)) as session:
                infos.append(session.resolved.server_info)
                parked = runner.next_launcher.pid
                assert parked is not None
                used = psutil.Process(parked).cpu_times()
                measurement = session.measure(point)
                assert psutil.Process(parked).cpu_times() == used, "it did nothing beside"
                assert measurement.output_tokens == 6 * 32
                environments.append(session.resolved.environment)
            if len(pids) == 1:
                next_pid = parked
        assert pids[1] == next_pid
    finally:
        runner.next_launcher.discard()
    assert environments[0] == environments[1], "its scheduler was given the same variables"
    differ = {name for name in infos[0] if infos[0][name] != infos[1].get(name)}
    assert differ <= {"port", "random_seed", "startup_time", "internal_states", "launch_command"}
