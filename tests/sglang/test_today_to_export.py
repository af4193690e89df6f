"""The main job on the real SGLang, from today's command to the exported one.

`tuner init` makes a study of a command, a sweep measures its baselines, is killed and resumed, and
its export is started by a shell. All of them must be the same server.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from results.store import Store
from search_spaces.configuration import Configuration
from search_spaces.study_file.load import load_study

from .by_hand import free_port, resolved, started
from .killed_sweep import check_against_the_samples, swept_with_a_kill

if TYPE_CHECKING:
    from runners.sglang_cpu import CpuServer

pytestmark = [pytest.mark.sglang, pytest.mark.long, pytest.mark.timeout(3000)]

REWRITTEN = {
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "CUDA_DEVICE_MAX_CONNECTIONS": "8",
}
"""Defaults that SGLang 0.5.23 sets (entrypoints/engine.py)."""


def todays_command(cpu: CpuServer, port: int) -> str:
    models = cpu.models
    return (
        "env SGLANG_USE_CPU_ENGINE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 NCCL_PROTO=LL,Simple "
        f"{cpu.python} -m sglang.launch_server --model-path {models}/tiny --device cpu "
        "--dtype float32 --max-total-tokens 20000 --max-running-requests 16 "
        "--chunked-prefill-size 512 --speculative-algorithm STANDALONE "
        # This is also the default: two baselines in one launch.
        f"--speculative-draft-model-path {models}/noisy --speculative-num-steps 3 "
        f"--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --port {port}"
    )


def exported(tuner: Any, number: int) -> dict[str, str]:
    """Shell commands that start the server of a trial, by export format."""
    export = ("export", "--study", "today", "--trial", str(number))
    tuner.run(*export, "--output", "best.sh")
    tuner.run(*export, "--format", "sglang-config", "--output", "best.yaml")
    (line,) = re.findall(
        r"^# +(\S.* --config FILE\.yaml.*)$",
        (tuner.folder / "best.yaml").read_text(),
        re.MULTILINE,
    )
    return {"script": "sh best.sh", "sglang-config": line.replace("FILE.yaml", "best.yaml")}


def what_is_started_again(tuner: Any, cpu: CpuServer, forms: set[str]) -> None:
    """Run the whole job; then start each of `forms` (`"today"` is the command itself)."""
    port = free_port()
    today = todays_command(cpu, port)
    tuner.run(
        *("init", "--yes", "--from-command", today, "--output", "today.yaml", "--name", "today"),
        *("--output-tokens", "48", "--launches", "2"),
    )
    text = (tuner.folder / "today.yaml").read_text()
    (point,) = re.findall(r"^ +points: .*\n", text, re.MULTILINE)
    short = f"{point}  requests: 4\n  warmup_requests: 1\n"
    (tuner.folder / "today.yaml").write_text(text.replace(point, short))
    assert load_study(tuner.folder / "today.yaml").production is not None
    report = swept_with_a_kill(tuner, "./today.yaml", "today", launches=2)
    check_against_the_samples(tuner, report)
    number = report["baselines"]["production"]
    trial = report["trials"][number]
    assert trial["configuration"]["speculation"] == {
        "algorithm": "STANDALONE",
        "num_steps": 3,
        "topk": 1,
        "num_draft_tokens": 4,
    }
    asked = Configuration.from_dict(trial["configuration"])
    assert Configuration.from_dict(trial["resolved"]) == asked

    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}", create=False) as store:
        measured = resolved(store.server_info(store.study("today").id, number))
        launches = {launch.id: launch for launch in store.launches(store.study("today").id)}
    # The scheduler has the requested variables and SGLang's defaults.
    effective = dict(launches[trial["launches"][-1]].effective_environment)
    variables = {**REWRITTEN, "NCCL_PROTO": "LL,Simple", "OMP_NUM_THREADS": "1"}
    assert variables.items() <= effective.items()

    lines = {"today": today, **exported(tuner, number)}
    for form in sorted(forms):
        with started(tuner, lines[form], port) as (info, environment):
            assert info["port"] == port, form
            assert resolved(info) == measured, form
            assert variables.items() <= environment.items(), form


def test_todays_command_is_measured_exported_and_started_again(cpu_server, tuner):
    what_is_started_again(tuner, cpu_server, {"script"})


@pytest.mark.sglang_long
def test_every_export_starts_the_same_server(cpu_server, tuner):
    what_is_started_again(tuner, cpu_server, {"today", "script", "sglang-config"})
