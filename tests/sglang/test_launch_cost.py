"""SGLang's cache folders, which the launch-cost report uses."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from runners.process.environment import LocalEnvironment
from runners.sglang.machine import read_machine

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
def test_cache_folders_equal_sglangs(cpu_server, monkeypatch):
    for name in [n for n in os.environ if n.endswith(("_CACHE_DIR", "_CACHE_PATH"))]:
        monkeypatch.delenv(name)
    its: dict[str, Any] = json.loads(ask(cpu_server, _CACHES))
    ours = read_machine(LocalEnvironment(str(cpu_server.python)))[0].caches
    assert ours["sglang"] == its["OWN"]
    assert ours["triton"] == its["TRITON_CACHE_DIR"]
    assert ours["inductor"] == its["TORCHINDUCTOR_CACHE_DIR"]
    assert ours["cuda"] == its["CUDA_CACHE_PATH"]
    assert ours["deep_gemm"] == its["DG"]
    assert ours["flashinfer"] == f"{its['FLASHINFER_WORKSPACE_BASE']}/.cache/flashinfer"
