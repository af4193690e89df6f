"""Log of the start-up: SGLang's lines in SGLang's order, from the right ranks."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from runners.sglang.server_log import phase_begun
from runners.simulated_server.engine.plugin import simulated_plugin
from runners.simulated_server.engine.profile import load_profile
from runners.simulated_server.launch.environment import read_environment
from runners.simulated_server.launch.flags import parse_flags, resolve
from runners.simulated_server.launch.log import ServerLog
from runners.simulated_server.launch.startup import Startup

RECORDED = Path(__file__).parents[2] / "data" / "failed" / "0.5.23-cpu"
# Lines of a CPU or of the recording machine only.
_ELSEWHERE = re.compile(
    r"init_threads_binding|init_cpu_threads_env|CUDA architecture|RLIMIT|OpenAI Responses API"
    r"|GET /|Prefill batch|server_args="
)
_SPECULATION = (
    *("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "models/draft"),
    *("--speculative-num-steps", "1", "--speculative-eagle-topk", "2"),
    *("--speculative-num-draft-tokens", "4"),
)


def _words(text):
    """Return the lines of a start-up with numbers and names replaced."""
    found = []
    for line in text.splitlines():
        if not line.startswith("[") or _ELSEWHERE.search(line):
            continue
        words = re.sub(r"^\[[^\]]*\] ", "", line)
        words = re.sub(r"torch\.\w+", "DTYPE", words)
        words = re.sub(r"type=\w+", "type=MODEL", words)
        found.append(re.sub(r"-?\d+(\.\d+)*", "#", words))
        if "Uvicorn running" in line or "Application startup complete" in line:
            break
    return found


@pytest.mark.parametrize(
    ("recorded", "flags"),
    [("port_in_use", ()), ("spec_tree_too_large", _SPECULATION)],
    ids=["plain", "STANDALONE"],
)
def test_as_recorded_on_a_cpu(recorded, flags, start):
    served = start("--device", "cpu", "--max-total-tokens", "20000", *flags, scale=1000.0)
    served.wait_log("Uvicorn running on")
    ours = _words(served.log)
    theirs = _words((RECORDED / f"{recorded}.log").read_text())
    assert len(theirs) >= 12
    ours = [line for line in ours if line in theirs]
    assert ours == theirs


@pytest.mark.parametrize(
    ("algorithm", "captured"),
    [
        (None, ["target decode"]),
        ("EAGLE3", ["target verify", "draft decode", "draft extend"]),
        ("NGRAM", ["target verify"]),
        ("DFLASH", ["target verify", "draft verify"]),
    ],
)
def test_graphs_of_every_algorithm(algorithm, captured, quick_profile, capsys):
    argv = ["--model-path", "m", "--tp-size", "2"]
    if algorithm is not None:
        argv += ["--speculative-algorithm", algorithm]
    if algorithm in {"EAGLE3", "DFLASH"}:
        argv += ["--speculative-draft-model-path", "draft"]
    flags, log = resolve(parse_flags(argv)), ServerLog(2)
    plugin = simulated_plugin(read_environment({}), flags, "0.5.23", log, state_s=0.0, faults=())
    profile = load_profile(quick_profile)
    Startup(profile, flags, log, 1000.0, plugin, (), began=time.monotonic()).run()
    log = capsys.readouterr().err
    assert re.findall(r"TP0\] Capture ([\w ]+) CUDA graph begin", log) == captured
    pools = log.count("TP0] KV Cache is allocated")
    assert pools == (2 if algorithm in {"EAGLE3", "DFLASH"} else 1)
    phases = [phase for line in log.splitlines() if (phase := phase_begun(line)) is not None]
    assert list(dict.fromkeys(phases)) == ["distributed", "weights", "kv_cache", "cuda_graph"]
    for line in ("Init parallel begin.", "Load weight begin.", "Memory pool end."):
        assert log.count(f"TP1] {line}") == log.count(f"TP0] {line}") > 0
    assert "TP1] max_total_num_tokens" not in log
    assert "TP2]" not in log
