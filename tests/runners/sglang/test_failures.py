"""Failures are recognised from recorded logs of real servers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from runners.sglang.failure_rules import RULES
from runners.sglang.failures import ready_timeout, recognise
from runners.sglang.server_log import FIRST, phase_begun

LOGS = Path(__file__).parents[1].parent / "data" / "failed"

EXPECTED = json.loads((LOGS / "expected.json").read_text())
"""Failure by recording; `tests/sglang` expects the same of the real SGLang."""
# Recordings without their beginning, so the phase is given here.
CUT = {
    "0.5.23-cpu/eagle_shape_mismatch": "warmup",
    "0.5.17-h200/F0_proto_FOO": "distributed",
    "0.5.17-h200/F1_algo_CollnetDirect": "distributed",
    "0.5.17-h200/T7_nccl_Tree": "cuda_graph",
}


def test_every_recorded_log_has_an_expectation():
    recorded = {str(path.relative_to(LOGS).with_suffix("")) for path in LOGS.rglob("*.log")}
    assert recorded == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_recorded_log(name):
    tail = (LOGS / f"{name}.log").read_text()
    phase = CUT.get(name, FIRST)
    for line in tail.splitlines():
        phase = phase_begun(line) or phase
    stated = re.search(r"^### exit_code=(\d+)", tail, re.MULTILINE)
    code = int(stated[1]) if stated else 137
    failure = recognise(tail, exit_code=code if code < 128 else 128 - code, phase=phase)
    expected = EXPECTED[name]
    assert (failure.kind, failure.phase, failure.fault) == (
        expected["kind"],
        expected["phase"],
        expected["fault"],
    )
    assert expected["message"] in failure.message
    assert len(failure.message) <= 400
    assert "\n" not in failure.message


# Lines without a recorded log, from the sources of SGLang 0.5.23 and torch.
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
        (
            "[Errno 99] error while attempting to bind on address ('203.0.113.7', 30000): cannot "
            "assign requested address"
        ),
        "bad_address",
        "study",
    ),
    (
        "[Errno 13] error while attempting to bind on address ('127.0.0.1', 80): permission denied",
        "bad_address",
        "study",
    ),
    (
        "PermissionError: [Errno 13] Permission denied: '/models/llama/config.json'",
        "model_unreadable",
        "study",
    ),
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
def test_quoted_line(text, kind, fault):
    tail = f"[2026-11-29 19:19:53 TP0] Scheduler hit an exception: Traceback\n{text}\n"
    failure = recognise(tail, exit_code=-9, phase="cuda_graph")
    assert (failure.kind, failure.fault) == (kind, fault)


def test_refused_flags_without_message_get_the_place():
    tail = (
        '  File "/srv/sglang/srt/server_args.py", line 290, in check_server_args\n'
        '  File "/srv/sglang/srt/arg_groups/validation_hook.py", line 244, in check\n'
        "ZeroDivisionError: integer modulo by zero\n"
    )
    failure = recognise(tail, exit_code=1, phase=FIRST)
    assert (failure.kind, failure.fault) == ("invalid_flags", "configuration")
    assert "validation_hook.py:244 in check" in failure.message
    assert recognise(tail, exit_code=1, phase="weights").kind == "server_crashed"


def test_hang_on_an_address_names_the_address():
    tail = (
        "[W1130 06:36:55 TCPStore.cpp:340] [c10d] TCP client failed to connect/validate to host "
        "203.0.113.7:26024 - retrying (try=1, timeout=1800000ms, delay=549ms)\n"
        "Exception raised from ping at TCPStore.cpp:427 (most recent call first):\n"
        "<omitting python frames>\nframe #58: _start + 0x21 (0x5607 in python)\n\n"
    )
    assert "203.0.113.7" in ready_timeout(tail, phase="distributed", seconds=300).message


def test_bad_value_of_a_varied_flag_is_a_configuration_fault():
    tail = (LOGS / "0.5.23-cpu/bad_choice.log").read_text()
    failure = recognise(tail, exit_code=2, phase="arguments", varied_flags={"attention-backend"})
    assert failure.fault == "configuration"


def test_logged_arguments_and_requests_are_ignored():
    tail = (
        "[2026-11-29 19:09:22] server_args=ServerArgs(trust_remote_code=True, "
        "note='address already in use')\n"
        '[2026-11-29 19:12:00] INFO:     127.0.0.1:42236 - "GET /Xid/ HTTP/1.1" 200 OK\n'
        "MadeUpError: something new\n"
    )
    failure = recognise(tail, exit_code=1, phase="weights")
    assert failure.kind == "server_crashed"
    assert failure.message == "MadeUpError: something new (exit code 1)"


def test_unknown_crash_shows_the_last_meaningful_line():
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
def test_signal_from_outside_is_a_host_fault(exit_code, number):
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
def test_killed_and_crashed_schedulers(exit_code, kind, fault):
    tail = (
        f"[x] Subprocess scheduler_0 (pid=1) crashed with exit code {exit_code}. Triggering ...\n"
        "[x] kill_process_tree called: parent_pid=1, include_parent=True\n"
    )
    failure = recognise(tail, exit_code=-9, phase="load")
    assert (failure.kind, failure.fault) == (kind, fault)


@pytest.mark.parametrize("exit_code", [-11, -6, -4, -7, -8, 139, 134])
def test_segmentation_fault_is_a_configuration_fault(exit_code):
    failure = recognise("[x] Load weight begin.\n", exit_code=exit_code, phase="weights")
    assert (failure.kind, failure.fault) == ("server_crashed", "configuration")
    assert f"exit code {exit_code}" in failure.message


def test_normal_exit_is_a_host_fault():
    failure = recognise("[x] Shutting down\n", exit_code=0, phase="load")
    assert (failure.kind, failure.fault) == ("server_ended", "host")
    assert "Shutting down" in failure.message


def test_empty_log():
    assert "the log is empty" in recognise("", exit_code=1, phase="arguments").message


def test_hang_names_phase_and_last_line():
    failure = ready_timeout(
        "[2026-11-29 19:09:45] Init torch distributed begin.\n", phase="distributed", seconds=300
    )
    assert (failure.kind, failure.phase, failure.fault) == (
        "ready_timeout",
        "distributed",
        "configuration",
    )
    assert "Init torch distributed begin." in failure.message


def test_docs_list_every_kind():
    page = (Path(__file__).parents[3] / "docs" / "failures.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    unrecognised = {
        ("invalid_flags", "configuration"),
        ("server_killed", "host"),
        ("server_ended", "host"),
        ("server_crashed", "configuration"),
        ("ready_timeout", "configuration"),
    }
    kinds = {(rule.kind, rule.fault) for rule in RULES} | unrecognised
    assert documented == kinds, "docs/failures.md needs one row per kind and fault"


SIGQUIT_0_5_9 = "[2026-02-24 10:00:00] Received sigquit from a child process. It usually means ..."
DEAD_0_5_9 = "[2026-02-24 10:00:00] Rank 0 scheduler is dead. Please check if there are logs."
OLDER = {
    # 0.5.9 does not log that it kills its own group.
    "0.5.9 own end": (
        f"Scheduler hit an exception: Traceback\nMadeUpError: something\n\n{SIGQUIT_0_5_9}\n",
        -9,
        ("server_crashed", "configuration", "MadeUpError: something"),
    ),
    "0.5.9 scheduler killed": (
        (
            f"{DEAD_0_5_9}\n"
            "[2026-02-24 10:00:00] Exit code: -9\nTraceback (most recent call last):\nEOFError\n"
        ),
        1,
        ("scheduler_killed", "host", "dmesg"),
    ),
    "0.5.9 scheduler crashed": (
        (
            f"{DEAD_0_5_9}\n"
            "[2026-02-24 10:00:00] Exit code: -11\nTraceback (most recent call last):\nEOFError\n"
        ),
        1,
        ("server_crashed", "configuration", "EOFError"),
    ),
    "0.5.9 speculation flags": (
        (
            '  File "/srv/sglang/srt/server_args.py", line 2421, in _handle_speculative_decoding\n'
            "AssertionError\n"
        ),
        1,
        ("invalid_speculation", "configuration", "server_args.py:2421"),
    ),
    "0.5.9 page size": (
        (
            "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces "
            "incorrect results for paged attention backends.\n"
        ),
        1,
        ("unsupported_backend", "configuration", "page_size > 1"),
    ),
    "0.5.9 draft missing": (
        (
            '  File "/srv/sglang/srt/speculative/eagle_worker.py", line 151, in __init__\n'
            "OSError: models/nosuch is not a local folder and is not a valid model identifier\n"
            f"{SIGQUIT_0_5_9}\n"
        ),
        -9,
        ("draft_not_found", "study", "`model.draft`"),
    ),
    "0.5.17 adaptive": (
        (
            "Exception: Capture cuda graph failed: shared logits buffer holds 96 rows but caller "
            "needs 192 (vocab_size=128256)\nPossible solutions:\n1. set --mem-fraction-static\n"
        ),
        -9,
        ("invalid_speculation", "configuration", "deepest"),
    ),
    "0.5.17 no implementation": (
        (
            "ValueError: FooForCausalLM has no SGlang implementation and the Transformers "
            "implementation is not compatible with SGLang.\n"
        ),
        -9,
        ("unsupported_model", "study", "config.json"),
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_messages_of_other_versions(name):
    tail, exit_code, (kind, fault, part) = OLDER[name]
    failure = recognise(tail, exit_code=exit_code, phase="arguments")
    assert (failure.kind, failure.fault) == (kind, fault)
    assert part in failure.message
