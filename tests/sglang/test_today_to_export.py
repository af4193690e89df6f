"""From today's command to the exported one, on the real SGLang: all of them start one server.

`tuner init` makes a study of a command, a sweep measures its baselines, and what it exports is
started as a user would start it.
"""

from __future__ import annotations

import json
import re

import pytest

from results.store import Store
from search_spaces import Configuration, load_study

from .by_hand import free_port, resolved, started

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(3000)]

REWRITTEN = {
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "CUDA_DEVICE_MAX_CONNECTIONS": "8",
}
"""What SGLang 0.5.23 sets by itself where nobody did (entrypoints/engine.py)."""


def test_what_runs_today_is_measured_exported_and_started_again(cpu_server, tuner):
    port, models = free_port(), cpu_server.models
    today = (
        "env SGLANG_USE_CPU_ENGINE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 NCCL_PROTO=LL,Simple "
        f"{cpu_server.python} -m sglang.launch_server --model-path {models}/tiny --device cpu "
        "--dtype float32 --max-total-tokens 20000 --max-running-requests 16 "
        "--chunked-prefill-size 512 --speculative-algorithm STANDALONE "
        f"--speculative-draft-model-path {models}/noisy --speculative-num-steps 2 "
        f"--speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --port {port}"
    )
    tuner.run(
        *("init", "--yes", "--from-command", today, "--output", "today.yaml", "--name", "today"),
        *("--output-tokens", "48", "--launches", "3"),
    )
    text = (tuner.folder / "today.yaml").read_text()
    (point,) = re.findall(r"^ +points: .*\n", text, re.MULTILINE)
    short = f"{point}  requests: 2\n  warmup_requests: 1\n"
    (tuner.folder / "today.yaml").write_text(text.replace(point, short))
    study = load_study(tuner.folder / "today.yaml")
    assert study.production is not None
    report = json.loads(
        tuner.run("sweep", "--study", "./today.yaml", "--json", timeout=2000).stdout
    )
    number = report["baselines"]["production"]
    trial = report["trials"][number]
    assert trial["configuration"]["speculation"] == {
        "algorithm": "STANDALONE",
        "num_steps": 2,
        "topk": 1,
        "num_draft_tokens": 3,
    }
    asked = Configuration.from_dict(trial["configuration"])
    assert Configuration.from_dict(trial["resolved"]) == asked

    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}", create=False) as store:
        measured = resolved(store.server_info(store.study("today").id, number))
        launches = {launch.id: launch for launch in store.launches(store.study("today").id)}
    # What the scheduler had in the end: what was asked for, and what SGLang made of the rest.
    effective = dict(launches[trial["launches"][-1]].effective_environment)
    variables = {**REWRITTEN, "NCCL_PROTO": "LL,Simple", "OMP_NUM_THREADS": "1"}
    assert variables.items() <= effective.items()

    export = ("export", "--study", "today", "--trial", str(number))
    tuner.run(*export, "--format", "sglang-config", "--output", "best.yaml")
    (line,) = re.findall(
        r"^# +(\S.* --config FILE\.yaml.*)$",
        (tuner.folder / "best.yaml").read_text(),
        re.MULTILINE,
    )
    # Its script, the third that is started, is in `test_sweep`.
    lines = {"today": today, "sglang-config": line.replace("FILE.yaml", "best.yaml")}
    for name, command in lines.items():
        with started(tuner, command, port) as (info, environment):
            assert info["port"] == port, name
            assert resolved(info) == measured, name
            assert variables.items() <= environment.items(), name
