"""Failing starts compared with the recorded logs of the real server."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runners.simulated_server.__main__ import main

pytestmark = pytest.mark.slow

LOGS = Path(__file__).parents[2] / "data" / "failed"
SETTLED = {"TUNER_SIM_TIME_SCALE": "1000"}

_SPECULATION = (
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path models/eagle3 "
    "--speculative-num-steps {} --speculative-eagle-topk {} --speculative-num-draft-tokens {}"
)
_TINY = "--model-path models/tiny --device cpu --host 127.0.0.1 --port 31000"


def _dies(phase, cause, **when):
    trouble = {"kind": "exit", "phase": phase, "cause": cause, "when": when}
    return {"TUNER_SIM_MISBEHAVE": json.dumps([trouble])}


# Command lines of logs that lack them.
FLAGS = {
    "0.5.23-cpu/unknown_flag": f"{_TINY} --speculative-eagle-topkk 2",
    "0.5.23-cpu/bad_choice": f"{_TINY} --attention-backend nosuch",
    "0.5.23-cpu/eagle_no_draft": f"{_TINY} --speculative-algorithm EAGLE3",
    "0.5.23-cpu/eagle_torch_native_backend": (
        f"{_TINY} {_SPECULATION.format(3, 2, 6)} --attention-backend torch_native"
    ),
    "0.5.17-h200/F0_proto_FOO": "--model-path models/tiny --tp-size 2",
    "0.5.17-h200/F1_algo_CollnetDirect": "--model-path models/tiny --tp-size 2",
    "0.5.17-h200/T7_nccl_Tree": "--model-path models/tiny --tp-size 2",
    # Failures of model files or of the host, which flags do not cause.
    "0.5.23-cpu/bad_draft_path": f"{_TINY} {_SPECULATION.format(3, 1, 4)}",
    "0.5.23-cpu/eagle_shape_mismatch": f"{_TINY} {_SPECULATION.format(3, 1, 4)}",
    "0.5.23-cpu/oom_kv": f"{_TINY} --max-total-tokens 40000000",
    "0.5.17-h200/fa3": f"--model-path models/tiny {_SPECULATION.format(2, 1, 3)}",
    "0.5.17-h200/no_deep_gemm": f"--model-path models/tiny {_SPECULATION.format(2, 1, 3)}",
}
ENVIRONMENT = {
    "0.5.17-h200/F0_proto_FOO": {"NCCL_PROTO": "FOO"},
    "0.5.17-h200/F1_algo_CollnetDirect": {"NCCL_ALGO": "CollnetDirect"},
    "0.5.17-h200/T7_nccl_Tree": {"NCCL_ALGO": "Tree"},
    "0.5.23-cpu/bad_model_path": _dies("arguments", "model_not_found", model_path="models/nosuch"),
    "0.5.23-cpu/hf_repo_offline": _dies("arguments", "model_not_found"),
    "0.5.23-cpu/bad_draft_path": _dies("arguments", "draft_not_found"),
    "0.5.23-cpu/eagle_shape_mismatch": _dies("warmup", "draft_mismatch", algorithm="EAGLE3"),
    "0.5.23-cpu/oom_kv": _dies("kv_cache", "killed"),
    "0.5.17-h200/fa3": _dies("kv_cache", "missing_module", attention_backend=None),
    "0.5.17-h200/no_deep_gemm": _dies("cuda_graph", "missing_module", num_steps=2),
}
# The simulated models have another context length than the tiny model.
CHANGED = {"0.5.23-cpu/context_too_long": (("100000", "300000"), ("2048", "262144"))}
# Covered by `tests/contract/test_ends.py`: an occupied port, and a scheduler killed while serving.
ELSEWHERE = {
    "0.5.23-cpu/port_in_use",
    "0.5.23-cpu/crash_scheduler_killed",
    # Equal to `bad_model_path` after 47 seconds of retries without HF_HUB_OFFLINE.
    "0.5.23-cpu/bad_model_path_online",
}
EXIT = re.compile(r"^### exit_code=(\d+).*", re.MULTILINE)
# Starts that fail while the server listens.
WARM_UP = {
    f"0.5.23-cpu/{name}"
    for name in ("eagle_shape_mismatch", "spec_tree_too_large", "spec_narrow_tree")
}
DIAGNOSTICS = re.compile(r"py-?spy|coredump", re.IGNORECASE)
KILLED = 137


# Logs in `-own` that flags alone cause; the others need damaged models or narrow limits.
BY_FLAGS_ALONE = {
    *("adaptive_steps_no_candidate", "ambiguous_option", "bad_integer", "chunk_not_of_pages"),
    *("dflash_on_a_cpu", "page_size_zero", "quantization_unknown"),
}


def _names():
    paths = [
        path
        for path in sorted(LOGS.rglob("*.log"))
        if not path.parent.name.endswith("-own") or path.stem in BY_FLAGS_ALONE
    ]
    found = (str(path.relative_to(LOGS).with_suffix("")) for path in paths)
    return [name for name in found if name not in ELSEWHERE]


def _last_lines(text, traceback):
    """Return the lines after the last frame of the last traceback, or the last line."""
    text = EXIT.sub("", text)
    text = re.sub(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: TP\d)?\]", "[then]", text)
    text = re.sub(r"pid=\d+", "pid=1", text)
    # Lines of the crash diagnostics depend on timing.
    lines = [line for line in text.splitlines() if line.strip() and not DIAGNOSTICS.search(line)]
    if traceback:
        begins = max(i for i, line in enumerate(lines) if line.startswith("  File "))
        lines = lines[begins:]
    else:
        lines = lines[-1:]
    # Recordings of two ranks have the launcher's lines twice.
    return [line for i, line in enumerate(lines) if line not in lines[:i]]


class _KilledError(Exception):
    pass


def _killed(*_):
    raise _KilledError


def _in_process(flags, environment, capsys, monkeypatch):
    """Return exit status and stderr of a start that fails before the server listens."""
    for name in [name for name in os.environ if name.startswith(("TUNER_", "NCCL"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    # The process ends its group only if it leads one.
    monkeypatch.setattr("os.getpgrp", lambda: 0)
    monkeypatch.setattr("os._exit", _killed)
    status = KILLED
    try:
        main(shlex.split(flags))
    except _KilledError:
        pass
    except SystemExit as end:
        status = end.code
    return status, capsys.readouterr().err


def _as_process(flags, environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TUNER_", "NCCL"))}
    done = subprocess.run(
        [sys.executable, "-m", "runners.simulated_server", *shlex.split(flags)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=kept | environment,
        start_new_session=True,
    )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stderr


@pytest.mark.parametrize("name", _names())
def test_as_recorded(name, quick_profile, capsys, monkeypatch):
    recorded = (LOGS / f"{name}.log").read_text()
    command = recorded.splitlines()[0]
    flags = FLAGS.get(name) or command.split("launch_server ", 1)[1]
    for before, after in CHANGED.get(name, ()):
        flags, recorded = flags.replace(before, after), recorded.replace(before, after)
    environment = SETTLED | {"TUNER_SIM_PROFILE": str(quick_profile)} | ENVIRONMENT.get(name, {})
    flags = re.sub(r"--port \d+", "--port 0", flags)
    if name in WARM_UP:
        status, log = _as_process(flags, environment)
    else:
        status, log = _in_process(flags, environment, capsys, monkeypatch)
    stated = EXIT.search(recorded)
    assert status == (int(stated[1]) if stated else KILLED)
    traceback = "Traceback" in recorded or "  File " in recorded
    assert _last_lines(log, traceback) == _last_lines(recorded, traceback)


def test_every_named_recording_is_tested():
    assert set(FLAGS) | set(ENVIRONMENT) | set(CHANGED) <= set(_names())
