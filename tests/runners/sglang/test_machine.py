"""Machine and GPUs, read in the server's environment."""

from __future__ import annotations

import platform
import socket
import sys

import pytest

from results.records import Machine
from runners.base import EnvironmentUnusableError
from runners.process.environment import CommandPrefix, LocalEnvironment
from runners.sglang.machine import CACHE_VARIABLES, device_names, gpus_used, read_machine
from runners.sglang.runner import SGLangRunner
from search_spaces.study_file.load import parse_study
from search_spaces.study_file.study import Production

from ..fake_sglang import write_sglang

SMI = """#!/bin/sh
case "$*" in
  *query-gpu*)
    echo "0, GPU-aaaa1111-0, 570.10, NVIDIA H200"
    echo "1, GPU-bbbb2222-0, 570.10, NVIDIA H200"
    echo "2, GPU-cccc3333-0, 570.10, NVIDIA H100 80GB HBM3" ;;
  "topo -m") printf '\\033[4mGPU0\\tGPU1\\033[0m\\nX\\tNV18\\n' ;;
  *) exit 9 ;;
esac
"""

DISTRIBUTIONS = {
    "sglang": "0.5.17",
    "torch": "2.9.1+cu128",
    "nvidia-nccl-cu12": "2.27.5",
}


@pytest.fixture
def gpu_box(tmp_path, monkeypatch):
    """An environment with a driver's tool and SGLang's distributions, but without either."""
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.write_text(SMI)
    tool.chmod(0o755)
    for name, version in DISTRIBUTIONS.items():
        info = tmp_path / "site" / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        info.joinpath("METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return CommandPrefix(
        ("env", f"PATH={tmp_path / 'bin'}:/usr/bin:/bin", f"PYTHONPATH={tmp_path / 'site'}"),
        sys.executable,
    )


def small(flags: str, env: str = "{}"):
    return parse_study(
        f"study: s\nmodel: {{path: m/m}}\nserver: {{flags: {flags}, env: {env}}}\n"
        "space: {speculation: [{algorithm: none}]}\n"
        "workload: {prompts: {chat: 1.0}, output_tokens: 8, points: [{concurrency: 1}]}\n"
        "budget: {launches: 1}\n",
        "s.yaml",
    )


def test_versions_gpus_and_topology_behind_a_prefix(gpu_box):
    machine, uuids = read_machine(gpu_box)
    assert (machine.sglang, machine.torch, machine.nccl) == ("0.5.17", "2.9.1+cu128", "2.27.5")
    assert machine.gpus == ("NVIDIA H200", "NVIDIA H200", "NVIDIA H100 80GB HBM3")
    assert machine.driver == "570.10"
    assert machine.topology == "GPU0\tGPU1\nX\tNV18"
    assert machine.host == socket.gethostname()
    assert machine.kernel == platform.release()
    assert machine.python == platform.python_version()
    assert machine.cpu
    assert uuids == ("GPU-aaaa1111-0", "GPU-bbbb2222-0", "GPU-cccc3333-0")
    assert Machine.from_dict(machine.to_dict()) == machine


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [
        ("2,0", ["GPU-cccc3333-0", "GPU-aaaa1111-0"]),
        ("GPU-bbbb", ["GPU-bbbb2222-0"]),
        ("1,7,0", ["GPU-bbbb2222-0"]),
        ("-1", []),
        ("", []),
        ("MIG-3f6b", []),
    ],
)
def test_visible_devices_of_the_server_are_read(gpu_box, chosen, seen):
    machine, uuids = read_machine(gpu_box, {"CUDA_VISIBLE_DEVICES": chosen})
    assert list(uuids) == seen
    assert len(machine.gpus) == len(seen)


def test_machine_without_gpus_and_sglang(tmp_path):
    machine, uuids = read_machine(LocalEnvironment(sys.executable), {"PATH": str(tmp_path)})
    assert machine.gpus == uuids == ()
    assert machine.driver is None
    assert machine.topology is None


def test_missing_interpreter_is_an_error():
    with pytest.raises(EnvironmentUnusableError, match="cannot run /none/python"):
        read_machine(LocalEnvironment("/none/python"))


@pytest.mark.parametrize(
    ("flags", "used"),
    [
        ("{}", (0,)),
        ("{tp-size: 4}", (0, 1, 2, 3)),
        ("{tp-size: 2, pp-size: 2, base-gpu-id: 4}", (4, 5, 6, 7)),
        ("{tp-size: 2, gpu-id-step: 2}", (0, 2)),
        ("{tp-size: 2, dp-size: 2}", (0, 1, 2, 3)),
        ("{tp-size: 2, dp-size: 2, enable-dp-attention: true}", (0, 1)),
        ("{tp-size: 8, nnodes: 2}", (0, 1, 2, 3)),
        ("{device: cpu, tp-size: 2}", ()),
    ],
)
def test_gpus_follow_from_parallel_sizes(flags, used):
    assert gpus_used(small(flags).server.flags) == used


def test_device_names_are_uuids_or_chosen_numbers(gpu_box, monkeypatch):
    _, uuids = read_machine(gpu_box)
    assert device_names(small("{tp-size: 2}"), uuids) == ("gpu-aaaa1111-0", "gpu-bbbb2222-0")
    assert device_names(small("{device: cpu}"), uuids) == ("cpu",)
    varied = small("{tp-size: 2}")
    space = varied.space.model_copy(update={"env": {"CUDA_VISIBLE_DEVICES": ("0,1", "1,2")}})
    varied = varied.model_copy(update={"space": space})
    assert device_names(varied, uuids) == ("gpu-aaaa1111-0", "gpu-bbbb2222-0", "gpu-cccc3333-0")
    unknown = ()
    assert device_names(small("{tp-size: 2}"), unknown) == ("gpu-0", "gpu-1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    assert device_names(small("{tp-size: 2}"), unknown) == ("gpu-5", "gpu-6")
    # All GPUs that a configuration or the production command may use.
    wider = small("{}").model_copy(update={"server": small("{tp-size: 2}").server})
    space = wider.space.model_copy(update={"flags": {"base-gpu-id": (None, 1)}})
    wider = wider.model_copy(update={"space": space})
    assert device_names(wider, unknown) == ("gpu-2", "gpu-5", "gpu-6")
    serve = f"python -m sglang.launch_server --model-path {wider.model.path}"
    today = wider.model_copy(update={"production": Production(command=f"{serve} --tp 4")})
    assert device_names(today, unknown) == ("gpu-2", "gpu-3", "gpu-5", "gpu-6")
    chosen = small("{}", "{CUDA_VISIBLE_DEVICES: '7'}")
    assert device_names(chosen, unknown) == ("gpu-7",)


def test_runner_reads_its_server_environment(gpu_box, tmp_path):
    study = small("{}", "{CUDA_VISIBLE_DEVICES: '2'}")
    server = study.server.model_copy(update={"prefix": gpu_box.prefix, "python": gpu_box.python})
    runner = SGLangRunner(study.model_copy(update={"server": server}), seed=0, log_dir=tmp_path)
    assert runner.machine().gpus == ("NVIDIA H100 80GB HBM3",)
    assert runner.devices() == ("gpu-cccc3333-0",)


@pytest.mark.parametrize("moves", [False, True], ids=["0.5.17", "0.5.23"])
def test_cache_folders_of_sglang_versions(tmp_path, monkeypatch, moves):
    """SGLang 0.5.23 moves other packages' caches under its own."""
    for name in CACHE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    site = write_sglang(tmp_path)
    source = "def third_party_cache_defaults(): ..." if moves else ""
    (site / "sglang" / "srt" / "environ.py").write_text(source)
    here = LocalEnvironment(sys.executable)
    variables = {"PYTHONPATH": str(site), "HOME": "/h", "TMPDIR": str(tmp_path), "USER": "me"}
    caches = read_machine(here, variables | {"LOGNAME": "me"})[0].caches
    own = "/h/.cache/sglang"
    assert caches == {
        "sglang": own,
        "triton": f"{own}/triton" if moves else "/h/.triton/cache",
        "inductor": f"{own}/inductor" if moves else f"{tmp_path}/torchinductor_me",
        "flashinfer": f"{own}/.cache/flashinfer" if moves else "/h/.cache/flashinfer",
        "tvm_ffi": "/h/.cache/tvm-ffi",
        "deep_gemm": f"{own}/deep_gemm" if moves else "/h/.cache/deep_gemm",
        "cuda": f"{own}/nv" if moves else "/h/.nv/ComputeCache",
    }
    given = dict.fromkeys(CACHE_VARIABLES, "/given")
    chosen, _ = read_machine(here, variables | given)
    assert set(chosen.caches.values()) == {"/given", "/given/.cache/flashinfer"}
    assert Machine.from_dict(chosen.to_dict()) == chosen
