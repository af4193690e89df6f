"""The tuner's facts about SGLang's all-reduce kernel, compared with the installed source.

The kernel does not run on a CPU, so its limits are computed for simulated GPUs.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from runners.sglang.server_log import own_kernel_in
from search_spaces.nccl.allreduce import OWN_SIZES
from search_spaces.nccl.own_all_reduce import V1_BYTES, V2_BYTES

pytestmark = pytest.mark.sglang

_ASK = """
import json, pathlib
import torch
from types import SimpleNamespace
torch.cuda.get_device_properties = lambda *_: SimpleNamespace(multi_processor_count=132)
from sglang.srt.distributed.device_communicators import custom_all_reduce, custom_all_reduce_v2
from sglang.srt.distributed.device_communicators.configs import custom_all_reduce_v2 as tuned
least = {}
for generation in ((8, 0), (9, 0), (10, 0), (10, 7), (12, 0)):
    torch.cuda.get_device_capability = lambda *_: generation
    for function in vars(tuned).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()
    for size in tuned.get_supported_world_sizes():
        config = tuned.get_all_reduce_config(size)
        least[f"{generation} {size}"] = min(
            max(part.one_shot_push_threshold, part.one_shot_pull_threshold,
                part.two_shot_pull_threshold)
            for part in (config.graph, config.eager))
print(json.dumps({
    "v1": custom_all_reduce.CustomAllreduce._MAX_CAR_SIZE,
    "sizes": custom_all_reduce.CustomAllreduce._SUPPORTED_WORLD_SIZES,
    "v2": custom_all_reduce_v2._DEFAULT_MAX_SIZE,
    "least": least,
    "files": [m.__file__ for m in (custom_all_reduce, custom_all_reduce_v2)],
}))
"""


@pytest.fixture(scope="module")
def told(cpu_server):
    done = subprocess.run(
        [cpu_server.python, "-c", _ASK], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_limits_of_sglangs_all_reduce(told):
    assert told["v1"] == V1_BYTES
    assert told["v2"] == V2_BYTES
    assert tuple(told["sizes"]) == OWN_SIZES
    # Sizes below the workspace's limit are below every tuned threshold.
    assert min(told["least"].values()) >= V2_BYTES
    assert len(told["least"]) > 30


def test_log_lines_of_sglang_are_recognized(told, tmp_path):
    older, newer = (Path(file).read_text(encoding="utf-8") for file in told["files"])
    assert 'f"Registering {len(offset)} cuda graph addresses"' in older
    assert '"All Reduce config: symmetric_memory = %.2f MB, "' in newer
    assert '"local_buffer = %.2f MB, multicast = %s, pull = %s"' in newer
    (tmp_path / "log").write_text(
        "[2026-11-30 07:41:02 TP0] All Reduce config: symmetric_memory = 80.01 MB, "
        "local_buffer = 2.00 MB, multicast = False, pull = True\n"
    )
    kernel = own_kernel_in(tmp_path / "log")
    assert kernel is not None
    assert kernel.most_bytes == told["v2"]
