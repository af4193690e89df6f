"""Failures are recognised from what real servers left: their logs, recorded as they were."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runners.failures import ready_timeout, recognise
from runners.phases import FIRST, phase_begun

LOGS = Path(__file__).parent.parent / "data" / "failed"

# log: kind, phase, fault, a part of the message
RECORDED = {
    "0.5.23-cpu/unknown_flag": (
        ("unknown_flag", "arguments", "study"),
        "unrecognized arguments: --speculative-eagle-topkk 2",
    ),
    "0.5.23-cpu/bad_choice": (
        ("bad_flag_value", "arguments", "study"),
        "argument --attention-backend: invalid choice: 'nosuch'",
    ),
    "0.5.23-cpu/bad_model_path": (("model_not_found", "arguments", "study"), "`model.path`"),
    "0.5.23-cpu/bad_model_path_online": (
        ("model_not_found", "arguments", "study"),
        "`model.path`",
    ),
    "0.5.23-cpu/hf_repo_offline": (("model_not_found", "arguments", "study"), "`model.path`"),
    "0.5.23-cpu/bad_draft_path": (("draft_not_found", "arguments", "study"), "`model.draft`"),
    "0.5.23-cpu/context_too_long": (
        ("context_too_long", "arguments", "study"),
        "context_length (100000)",
    ),
    "0.5.23-cpu/bad_spec_algo": (
        ("invalid_speculation", "arguments", "configuration"),
        "Unknown speculative algorithm name: EAGLE9",
    ),
    "0.5.23-cpu/spec_steps_none_topk_set": (
        ("invalid_speculation", "arguments", "configuration"),
        "AssertionError at speculative_hook.py:1162 in _handle_eagle_family",
    ),
    "0.5.23-cpu/spec_steps_only": (
        ("invalid_speculation", "arguments", "configuration"),
        "'NoneType' and 'int'",
    ),
    "0.5.23-cpu/spec_steps_topk_no_draft_tokens": (
        ("invalid_speculation", "arguments", "configuration"),
        "'NoneType' and 'int'",
    ),
    "0.5.23-cpu/spec_topk_gt1_page16": (
        ("unsupported_backend", "arguments", "configuration"),
        "topk > 1 with page_size > 1",
    ),
    "0.5.23-cpu/eagle_torch_native_backend": (
        ("unsupported_backend", "kv_cache", "configuration"),
        "torch_native",
    ),
    "0.5.23-cpu/eagle_no_draft": (("draft_missing", "kv_cache", "study"), "`model.draft`"),
    "0.5.23-cpu/eagle_shape_mismatch": (
        ("draft_mismatch", "warmup", "study"),
        "14x512 and 768x256",
    ),
    "0.5.23-cpu/oom_kv": (("scheduler_killed", "kv_cache", "host"), "OOM"),
    "0.5.23-cpu/crash_scheduler_killed": (
        ("scheduler_killed", "ready", "host"),
        "Subprocess scheduler_0",
    ),
    "0.5.23-cpu/port_in_use": (("port_taken", "ready", "host"), "address already in use"),
    "0.5.23-cpu/spec_narrow_tree": (
        ("tree_too_narrow", "warmup", "configuration"),
        "must match the existing size (5)",
    ),
    "0.5.23-cpu/spec_tree_too_large": (
        ("tree_too_large", "warmup", "configuration"),
        "selected index k out of range",
    ),
    "0.5.17-h200/F0_proto_FOO": (
        ("nccl_invalid_usage", "distributed", "configuration"),
        "NCCL_DEBUG=WARN",
    ),
    "0.5.17-h200/F1_algo_CollnetDirect": (
        ("nccl_invalid_usage", "distributed", "configuration"),
        "NCCL error: invalid usage",
    ),
    "0.5.17-h200/T7_nccl_Tree": (
        ("nccl_invalid_usage", "cuda_graph", "configuration"),
        "NCCL error: invalid usage",
    ),
    "0.5.17-h200/fa3": (("missing_module", "kv_cache", "configuration"), "sgl_kernel"),
    "0.5.17-h200/no_deep_gemm": (
        ("missing_module", "cuda_graph", "configuration"),
        "No module named 'deep_gemm'",
    ),
}
# Of these only the end was recorded, so the phase cannot be read from them.
CUT = {
    "0.5.23-cpu/eagle_shape_mismatch": "warmup",
    "0.5.17-h200/F0_proto_FOO": "distributed",
    "0.5.17-h200/F1_algo_CollnetDirect": "distributed",
    "0.5.17-h200/T7_nccl_Tree": "cuda_graph",
}


def test_every_recorded_log_is_expected():
    recorded = {str(path.relative_to(LOGS).with_suffix("")) for path in LOGS.rglob("*.log")}
    assert recorded == set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name):
    tail = (LOGS / f"{name}.log").read_text()
    phase = CUT.get(name, FIRST)
    for line in tail.splitlines():
        phase = phase_begun(line) or phase
    stated = re.search(r"^### exit_code=(\d+)", tail, re.MULTILINE)
    code = int(stated[1]) if stated else 137
    failure = recognise(tail, exit_code=code if code < 128 else 128 - code, phase=phase)
    expected, part = RECORDED[name]
    assert (failure.kind, failure.phase, failure.fault) == expected
    assert part in failure.message
    assert len(failure.message) <= 400
    assert "\n" not in failure.message


# Texts that no log at hand shows: as they stand in SGLang 0.5.23, torch and the field notes.
QUOTED = [
    (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "kv_pool_too_small",
        "configuration",
    ),
    (
        "Exception: Capture cuda graph failed: CUDA out of memory.\nPossible solutions:\n1. set",
        "cuda_oom",
        "configuration",
    ),
    ("torch.OutOfMemoryError: CUDA out of memory.", "cuda_oom", "configuration"),
    ("NCCL error: Failed to CUDA calloc 10485760 bytes", "nccl_out_of_memory", "configuration"),
    (
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "nccl_system_error",
        "host",
    ),
    (
        "Exception: Capture cuda graph failed: unspecified launch failure",
        "cuda_graph_failed",
        "configuration",
    ),
    ("RuntimeError: selected index k out of range", "tree_too_large", "configuration"),
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
        "host_out_of_memory",
        "host",
    ),
    (
        "Scheduler watchdog timeout (self.watchdog_timeout=300.0, soft=False)",
        "hang_watchdog",
        "configuration",
    ),
    (
        "RuntimeError: rpc_port 30145 is used by a process already. Please kill it.",
        "port_taken",
        "host",
    ),
    ("ValueError: port 30233 is not available in 30 seconds", "port_taken", "host"),
    (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "cuda_error",
        "configuration",
    ),
    (
        "RuntimeError: Error(s) in loading state_dict for eagle: size mismatch for lm_head.weight",
        "draft_mismatch",
        "study",
    ),
    ("OSError: [Errno 28] No space left on device", "disk_full", "host"),
    (
        "RuntimeError: No CUDA GPUs are available: Found no NVIDIA driver on your system.",
        "gpu_unusable",
        "host",
    ),
    (
        "ValueError: Please pass the argument `trust_remote_code=True` to allow custom code",
        "trust_remote_code",
        "study",
    ),
]


@pytest.mark.parametrize(("text", "kind", "fault"), QUOTED, ids=[k for _, k, _ in QUOTED])
def test_quoted(text, kind, fault):
    tail = f"[2026-11-29 19:19:53 TP0] Scheduler hit an exception: Traceback\n{text}\n"
    failure = recognise(tail, exit_code=-9, phase="cuda_graph")
    assert (failure.kind, failure.fault) == (kind, fault)


def test_a_bad_value_of_a_varied_flag_is_the_configurations_fault():
    tail = (LOGS / "0.5.23-cpu/bad_choice.log").read_text()
    failure = recognise(tail, exit_code=2, phase="arguments", varied_flags={"attention-backend"})
    assert failure.fault == "configuration"


def test_the_servers_own_argument_list_is_no_symptom():
    tail = (
        "[2026-11-29 19:09:22] server_args=ServerArgs(trust_remote_code=True, "
        "note='address already in use')\n"
        '[2026-11-29 19:12:00] INFO:     127.0.0.1:42236 - "GET /Xid/ HTTP/1.1" 200 OK\n'
        "MadeUpError: something new\n"
    )
    failure = recognise(tail, exit_code=1, phase="weights")
    assert failure.kind == "server_crashed"
    assert failure.message == "MadeUpError: something new (exit code 1)"


def test_an_unknown_crash_shows_its_last_meaningful_line():
    tail = (
        "[2026-11-29 19:00:43] Load weight begin. avail mem=21.65 GB\n"
        "[2026-11-29 19:00:45] The frobnicator is on fire\n\n"
        "[2026-11-29 19:00:45] Received sigquit from a child process. It usually means ...\n"
        "[2026-11-29 19:00:45] kill_process_tree called: parent_pid=1, include_parent=True\n"
    )
    failure = recognise(tail, exit_code=-9, phase="weights")
    assert (failure.kind, failure.phase, failure.fault) == (
        "server_crashed",
        "weights",
        "configuration",
    )
    assert "The frobnicator is on fire" in failure.message


@pytest.mark.parametrize(("exit_code", "number"), [(-9, 9), (-15, 15), (137, 9), (143, 15)])
def test_a_signal_that_sglang_did_not_send_itself_is_the_hosts_fault(exit_code, number):
    failure = recognise("[x] Load weight begin.\n", exit_code=exit_code, phase="weights")
    assert (failure.kind, failure.fault) == ("server_killed", "host")
    assert f"signal {number} " in failure.message


@pytest.mark.parametrize(
    ("exit_code", "kind", "fault"),
    [
        (-9, "scheduler_killed", "host"),
        (-15, "scheduler_killed", "host"),
        (-11, "server_crashed", "configuration"),
        (-159, "server_crashed", "configuration"),
    ],
)
def test_a_scheduler_that_was_killed_or_crashed(exit_code, kind, fault):
    tail = (
        f"[x] Subprocess scheduler_0 (pid=1) crashed with exit code {exit_code}. Triggering ...\n"
        "[x] kill_process_tree called: parent_pid=1, include_parent=True\n"
    )
    failure = recognise(tail, exit_code=-9, phase="load")
    assert (failure.kind, failure.fault) == (kind, fault)


@pytest.mark.parametrize("exit_code", [-11, -6, -4, -7, -8, 139, 134])
def test_a_segmentation_fault_comes_from_nobody_else(exit_code):
    failure = recognise("[x] Load weight begin.\n", exit_code=exit_code, phase="weights")
    assert (failure.kind, failure.fault) == ("server_crashed", "configuration")
    assert f"exit code {exit_code}" in failure.message


def test_a_server_that_was_told_to_end_is_no_fault_of_its_configuration():
    failure = recognise("[x] Shutting down\n", exit_code=0, phase="load")
    assert (failure.kind, failure.fault) == ("server_ended", "host")
    assert "Shutting down" in failure.message


def test_an_empty_log():
    assert "the log is empty" in recognise("", exit_code=1, phase="arguments").message


def test_a_hang_names_phase_and_last_line():
    failure = ready_timeout(
        "[2026-11-29 19:09:45] Init torch distributed begin.\n", phase="distributed", seconds=300
    )
    assert (failure.kind, failure.phase, failure.fault) == (
        "ready_timeout",
        "distributed",
        "configuration",
    )
    assert "Init torch distributed begin." in failure.message
