"""What logs tell of SGLang's own all-reduce kernel: lines as SGLang writes them."""

from __future__ import annotations

import pytest

from runners.sglang.all_reduce_log import own_kernel_in
from search_spaces.nccl.own_all_reduce import MIB, V2_LIMIT

NOW = "[2026-11-30 07:41:02 TP0] "
ARGUMENTS = "[2026-11-30 07:40:40] server_args=ServerArgs(disable_custom_all_reduce={})\n"
V2_17 = (
    f"{NOW}All Reduce config: symmetric_memory = 80.01 MB, local_buffer = 2.00 MB, "
    "multicast = False\n"
)
V2_23 = V2_17.replace("False\n", "False, pull = True\n")
PUSH_ONLY = V2_17.replace("False\n", "False, pull = False\n")
V1 = f"{NOW}Registering 195 cuda graph addresses\n"
NONE_REGISTERED = f"{NOW}Registering 0 cuda graph addresses\n"
FAILED = f"{NOW}Setup Custom allreduce failed with CUDA error. To silence this warning, ...\n"
PCIE = (
    f"{NOW}CustomAllreduce is disabled because it's not supported on more than two PCIe-only "
    "GPUs.\n"
)
UNSUPPORTED = f"{NOW}CustomAllReduceV2 is disabled due to an unsupported world size: 3. ...\n"
READY = "[2026-11-30 07:41:30] The server is fired up and ready to roll!\n"
OFF = ARGUMENTS.format(True)
ON = ARGUMENTS.format(False)


@pytest.mark.parametrize(
    ("log", "name", "mib"),
    [
        (ON + V2_17 + READY, "custom all-reduce v2", 16),
        (ON + V2_23 + V2_23 + READY, "custom all-reduce v2", 16),
        (ON + V1 + READY, "custom all-reduce", 8),
        (V2_23 + PUSH_ONLY, "custom all-reduce v2", 16),  # also of a start that failed later
    ],
)
def test_a_kernel_that_runs(tmp_path, log, name, mib):
    (tmp_path / "log").write_text(log)
    kernel = own_kernel_in(tmp_path / "log")
    assert kernel is not None
    assert (kernel.name, kernel.most_bytes) == (name, mib * MIB)


@pytest.mark.parametrize(
    "log",
    [
        "",
        ON + READY,  # a log level above info says nothing
        OFF + READY,
        OFF + V2_23 + READY,  # deterministic inference, or a kernel of another purpose
        ON + PUSH_ONLY + READY,
        ON + NONE_REGISTERED + READY,
        ON + PCIE + READY,
        ON + V2_23 + FAILED + READY,
        ON + READY + V2_23,  # a prompt that was logged, say
    ],
)
def test_none_that_is_known_to_run(tmp_path, log):
    (tmp_path / "log").write_text(log)
    assert own_kernel_in(tmp_path / "log") is None


@pytest.mark.parametrize(
    ("log", "nvlink", "runs"),
    [
        ("", True, True),
        ("", False, False),
        (f"{NOW}Some warning of another kind\n", True, True),
        (PCIE, True, False),
        (UNSUPPORTED, True, False),
        (FAILED, True, False),
        (ON + READY, True, False),  # would have told
    ],
)
def test_a_log_above_info_tells_only_where_nvlink_joins_all_gpus(tmp_path, log, nvlink, runs):
    (tmp_path / "log").write_text(log)
    assert (own_kernel_in(tmp_path / "log", nvlink=nvlink) is not None) is runs
    assert own_kernel_in(tmp_path / "missing", nvlink=True) is None


def test_no_log_and_a_lower_limit(tmp_path):
    log = tmp_path / "log"
    assert own_kernel_in(log) is None
    log.write_text(V2_17)
    limits = {
        text: own_kernel_in(log, {V2_LIMIT: text}).most_bytes
        for text in ("1024", "65536", "-1", "")
    }
    assert limits == {"1024": MIB, "65536": 16 * MIB, "-1": 16 * MIB, "": 16 * MIB}
