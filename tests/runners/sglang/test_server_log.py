"""Start-up phases, growing logs and SGLang's own all-reduce kernel, from recorded lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.sglang.server_log import LogFollower, log_tail, own_kernel_in, phase_begun
from search_spaces.nccl.all_reduce import MIB, V2_LIMIT

LOGS = Path(__file__).parents[1].parent / "data" / "failed"


@pytest.mark.parametrize(
    ("log", "phases"),
    [
        (
            "0.5.23-cpu/port_in_use",
            ["distributed", "weights", "kv_cache", "warmup", "ready"],
        ),
        (
            "0.5.23-cpu/eagle_no_draft",
            ["distributed", "weights", "kv_cache", "weights", "kv_cache"],
        ),
        ("0.5.17-h200/fa3", ["distributed", "weights", "kv_cache"]),
        ("0.5.23-cpu/unknown_flag", []),
    ],
)
def test_phases_of_recorded_logs(log, phases):
    seen: list[str] = []
    for line in (LOGS / f"{log}.log").read_text().splitlines():
        phase = phase_begun(line)
        if phase is not None and (not seen or seen[-1] != phase):
            seen.append(phase)
    assert seen == phases


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("[2026-11-29 19:00:43 TP0] Load weight begin. avail mem=21.65 GB", "weights"),
        ("[2026-11-29 19:00:43 TP3] Load weight begin. avail mem=21.65 GB", None),
        ("[2026-11-29 19:00:43 DP1 TP0] Load weight begin. avail mem=21.65 GB", None),
        (
            "[2026-11-29 18:59:55] Capture target verify CUDA graph begin. backend=full",
            "cuda_graph",
        ),
        ("Capture cuda graph begin. This can take up to several minutes.", "cuda_graph"),
        ("Capturing batches (bs=4 avail_mem=70.78 GB):   0%|", "cuda_graph"),
        ("Disable prefill CUDA graph because cuda_graph_config resolved ...", None),
    ],
)
def test_phase_begun(line, phase):
    assert phase_begun(line) == phase


def test_follower_joins_partial_lines(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    follower = LogFollower(path)
    assert list(follower.lines()) == ["one"]
    with path.open("ab") as file:
        file.write(b"o\n\xff three\r\nfour")
    assert list(follower.lines()) == ["two", "\N{REPLACEMENT CHARACTER} three"]
    with path.open("ab") as file:
        file.write(b"\n")
    assert list(follower.lines()) == ["four"]
    follower.close()
    assert log_tail(path, 5) == "four\n"
    assert log_tail(tmp_path / "none") == ""


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
        (V2_23 + PUSH_ONLY, "custom all-reduce v2", 16),  # also before a later failure
    ],
)
def test_own_kernel_is_found(tmp_path, log, name, mib):
    (tmp_path / "log").write_text(log)
    kernel = own_kernel_in(tmp_path / "log")
    assert kernel is not None
    assert (kernel.name, kernel.most_bytes) == (name, mib * MIB)


@pytest.mark.parametrize(
    "log",
    [
        "",
        ON + READY,  # no evidence in a log above level info
        OFF + READY,
        OFF + V2_23 + READY,  # deterministic inference, or a kernel with another purpose
        ON + PUSH_ONLY + READY,
        ON + NONE_REGISTERED + READY,
        ON + PCIE + READY,
        ON + V2_23 + FAILED + READY,
        ON + READY + V2_23,  # after the start: may be a logged prompt
    ],
)
def test_own_kernel_is_unknown(tmp_path, log):
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
        (ON + READY, True, False),  # level info would show the kernel
    ],
)
def test_log_above_info_proves_the_kernel_only_with_nvlink(tmp_path, log, nvlink, runs):
    (tmp_path / "log").write_text(log)
    assert (own_kernel_in(tmp_path / "log", nvlink=nvlink) is not None) is runs
    assert own_kernel_in(tmp_path / "missing", nvlink=True) is None


def test_own_kernel_limit_is_at_most_the_default(tmp_path):
    log = tmp_path / "log"
    assert own_kernel_in(log) is None
    log.write_text(V2_17)
    limits = {
        text: own_kernel_in(log, {V2_LIMIT: text}).most_bytes
        for text in ("1024", "65536", "-1", "")
    }
    assert limits == {"1024": MIB, "65536": 16 * MIB, "-1": 16 * MIB, "": 16 * MIB}
