"""Configurations and environments that are read back from servers."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psutil
import pytest

from runners.base import LaunchCommand, differences
from runners.process.processes import ServerProcess
from runners.sglang.readback import effective_environment, is_recorded, resolved_of
from search_spaces.configuration import Configuration, Speculation
from search_spaces.study_file.load import parse_study

BODIES = Path(__file__).parents[1].parent / "data" / "bodies"


def info(name: str):
    return json.loads((BODIES / name).read_text())


def test_speculative_server(study):
    asked = Configuration.of(
        Speculation("STANDALONE", 3, 2, 6),
        draft_tp=1,
        flags={"attention-backend": None, "max-running-requests": 48, "enable-mixed-chunk": None},
        env={"NCCL_PROTO": "LL128", "NCCL_ALGO": None},
    )
    body = info("0.5.23-cpu/standalone_server_info.json")
    resolved = resolved_of(asked, study, body, {"NCCL_PROTO": "LL128", "HOME": "/"})
    assert resolved.sglang_version == "0.5.23"
    assert not resolved.simulated
    assert resolved.configuration.speculation == Speculation(
        "STANDALONE",
        body["speculative_num_steps"],
        body["speculative_eagle_topk"],
        body["speculative_num_draft_tokens"],
    )
    assert resolved.configuration.draft_tp == 1
    assert dict(resolved.configuration.flags) == {
        "attention-backend": body["attention_backend"],
        "max-running-requests": body["max_running_requests"],
        "enable-mixed-chunk": None,
    }
    assert dict(resolved.configuration.env) == {"NCCL_PROTO": "LL128", "NCCL_ALGO": None}


@pytest.mark.parametrize(
    "body", ["0.5.23-cpu/plain_server_info.json", "0.5.9-cpu/server_info.json"]
)
def test_server_without_speculation_has_no_draft(study, body):
    resolved = resolved_of(Configuration(), study, info(body), {"A": "b"})
    assert resolved.configuration == Configuration()


def test_unreported_flags_and_variables_are_left_out(study):
    asked = Configuration.of(flags={"no-such-flag": 1}, env={"NCCL_PROTO": "LL"})
    resolved = resolved_of(asked, study, info("0.5.23-cpu/plain_server_info.json"), {})
    assert resolved.configuration == Configuration()
    assert differences(asked, resolved.configuration) == ()


@pytest.mark.parametrize(
    ("asked", "found", "expected"),
    [
        ("8", 8, "8"),
        (8, "8", 8),
        (8, 9, 9),
        (None, False, None),
        (None, "triton", "triton"),
        (True, True, True),
        (True, False, None),
        ("a", ["a"], "a"),
        (None, [1, 2], "[1,2]"),
        ("1e-5", 1e-05, "1e-5"),
        ("1e-5", 2e-05, 2e-05),
        ("5e1", 50, 50),
        ('{"a": 1}', {"a": 1}, '{"a": 1}'),
        ('{"a": 1}', {"a": 2}, '{"a":2}'),
        ("[1, 2]", [1, 2], "[1, 2]"),
        ("true", True, "true"),
    ],
)
def test_values_have_the_requested_type(study, asked, found, expected):
    resolved = resolved_of(Configuration.of(flags={"x-y": asked}), study, {"x_y": found}, {})
    assert dict(resolved.configuration.flags) == {"x-y": expected}


@pytest.mark.parametrize(
    ("asked", "info", "ignored"),
    [
        # 0.5.23: `--dp-size 8 --enable-dp-attention`
        ({"dp-size": 8, "enable-dp-attention": True},
         {"dp_size": 1, "attn_dp_size": 8, "enable_dp_attention": True}, False),
        # 0.5.9, and replicas in both
        ({"dp-size": 8}, {"dp_size": 8, "enable_dp_attention": True}, False),
        ({"dp-size": 2}, {"dp_size": 2, "attn_dp_size": 1}, False),
        ({"dp-size": 2}, {"dp_size": 1, "attn_dp_size": 1}, True),
        ({"dp-size": 8}, {"dp_size": 1, "attn_dp_size": 4}, True),
        ({"dp-size": 2, "attn-dp-size": 2}, {"dp_size": 1, "attn_dp_size": 2}, True),
        ({"attn-dp-size": 4}, {"dp_size": 1, "attn_dp_size": 4}, False),
        ({"dp-size": 1, "enable-dp-attention": True},
         {"dp_size": 1, "attn_dp_size": 1, "enable_dp_attention": False}, True),
    ],
)  # fmt: skip
def test_dp_size_of_data_parallel_attention_under_both_names(study, asked, info, ignored):
    asked = Configuration.of(flags=asked)
    resolved = resolved_of(asked, study, info, {})
    assert bool(differences(asked, resolved.configuration)) == ignored


def test_differences_name_rewritten_knobs():
    asked = Configuration.of(
        Speculation("EAGLE3", 4, 1, 9),
        draft_tp=1,
        flags={"page-size": 16, "attention-backend": None},
        env={"NCCL_PROTO": None, "NCCL_ALGO": "Ring"},
    )
    runs = Configuration.of(
        Speculation("EAGLE3", 4, 1, 5),
        draft_tp=8,
        flags={"page-size": 1, "attention-backend": "fa3"},
        env={"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"},
    )
    assert differences(asked, asked) == ()
    assert differences(asked, runs) == (
        "num_draft_tokens: asked 9, runs 5",
        "draft_tp: asked 1, runs 8",
        "page-size: asked 16, runs 1",
        "NCCL_PROTO: asked None, runs 'LL'",
    )


STUDY = """\
study: small
model: {path: org/target}
space:
  speculation: [{algorithm: none}]
  flags: {page-size: [1, 64]}
  env: {A: ["1", "2"]}
workload: {prompts: {chat: 1.0}, output_tokens: 16}
budget: {launches: 4}
"""
TODAY = 'production: {command: "python -m sglang.launch_server --model-path org/target"}\n'
INFO = {"page_size": 1, "context_length": 131072, "cuda_graph_bs": [1, 2], "version": "0.5.23"}
ASKED = Configuration.of(
    flags={"page-size": 64, "context-length": "128k", "cuda-graph-bs": (1, 2)},
    env={"A": "1", "B": "1"},
)


def found(text: str, environ: dict[str, str]) -> tuple[str, ...]:
    study = parse_study(text, "small.yaml")
    return differences(ASKED, resolved_of(ASKED, study, INFO, environ).configuration)


def test_production_flags_keep_the_requested_value():
    assert found(STUDY + TODAY, {"A": "2"}) == (
        "page-size: asked 64, runs 1",
        "A: asked '1', runs '2'",
    )


def test_without_production_command_all_flags_are_compared():
    assert len(found(STUDY, {"A": "1"})) == 4


# Like SGLang: the started process changes its own environment, which the kernel does not show, and
# passes it on to its scheduler. The second child is no scheduler and has more variables.
TREE = """
import os, subprocess, sys
os.environ["NCCL_CUMEM_ENABLE"] = "0"
subprocess.Popen(["sglang::scheduler_TP0", "-c", "import time; time.sleep(600)"],
                 executable=sys.executable)
os.environ["NCCL_OTHER"] = "1"
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
import time
time.sleep(600)
"""

GIVEN = {
    "NCCL_PROTO": "LL",
    "SGLANG_RUN_ID": "7",
    "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz",
    "HF_HOME": "/cache",
    "SGLANG_PROXY": "API_KEY=very-secret",
    "MINE": "1",
}


@pytest.fixture
def server(tmp_path):
    log = tmp_path / "log"
    command = LaunchCommand((sys.executable, "-c", TREE), tuple(GIVEN.items()))
    process = ServerProcess.start(command, mark=tmp_path.name, port=1, log=log)
    deadline = time.monotonic() + 60
    while "ready" not in log.read_text() or len(process.members()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process
    process.stop(0.0)


def test_effective_environment_is_the_schedulers_without_secrets(server):
    found = effective_environment(server.members())
    assert found["NCCL_CUMEM_ENABLE"] == "0"  # not visible in the started process
    assert "NCCL_CUMEM_ENABLE" not in psutil.Process(server.identity.pid).environ()
    assert "NCCL_OTHER" not in found
    assert (found["NCCL_PROTO"], found["HF_HOME"]) == ("LL", "/cache")
    assert not {"SGLANG_RUN_ID", "HF_TOKEN", "MINE", "TUNER_LAUNCH"} & set(found)
    assert "very-secret" not in str(found)


def test_effective_environment_of_a_single_process(server):
    leader = psutil.Process(server.identity.pid)
    assert effective_environment([leader])["NCCL_PROTO"] == "LL"
    assert effective_environment([]) == {}


class Shown:
    """A process as `/proc` shows it."""

    def __init__(self, pid, title, environ):
        self.pid, self._title, self._environ = pid, title, environ

    def environ(self):
        return self._environ

    def cmdline(self):
        return [self._title]


def test_overwritten_environment_is_skipped():
    leader = Shown(1, "python", {"NCCL_PROTO": "LL", "PATH": "/bin"})
    wiped = Shown(2, "sglang::scheduler_TP0", {})
    assert effective_environment([leader, wiped]) == {"NCCL_PROTO": "LL"}
    # A process without recorded variables counts.
    plain = Shown(3, "sglang::scheduler_TP1", {"PATH": "/bin"})
    assert effective_environment([leader, wiped, plain]) == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NCCL_ALGO", True),
        ("TORCH_CUDA_ARCH_LIST", True),
        ("LD_PRELOAD", True),
        ("OMP_NUM_THREADS", True),
        ("HF_HUB_OFFLINE", True),
        ("HF_TOKEN", False),
        ("SGLANG_API_KEY", False),
        ("PATH", False),
        ("NVIDIA_VISIBLE_DEVICES", True),
        ("NVIDIA_TF32_OVERRIDE", True),
        ("NVIDIA_REQUIRE_CUDA", False),
        ("NVIDIA_DRIVER_CAPABILITIES", False),
        ("AWS_SECRET_ACCESS_KEY", False),
    ],
)
def test_recorded_variables_affect_serving_and_are_not_secret(name, expected):
    assert is_recorded(name) is expected
