"""What is recorded of a server's own environment."""

from __future__ import annotations

import sys
import time

import psutil
import pytest

from runners.base import LaunchCommand
from runners.process.processes import ServerProcess
from runners.sglang.effective_environment import effective_environment, is_recorded

# As SGLang does: the started process changes its own environment, which the kernel does not show,
# and starts its scheduler with it. Its second child is no scheduler, and has more to tell.
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
    assert found["NCCL_CUMEM_ENABLE"] == "0"  # which the started process does not show
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
    """A process as the kernel shows it."""

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
    # One that really has nothing of interest is believed.
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
