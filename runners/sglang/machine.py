"""Read the machine, software, kernel caches and GPUs of a server environment."""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from results.records import Machine
from search_spaces.gpus import gpus_of_node
from search_spaces.space.baselines import production_configuration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runners.process.environment import ServerEnvironment
    from search_spaces.study_file.study import Study

Link = Literal["nvlink", "pcie"]

CACHE_VARIABLES: Final = (
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "TVM_FFI_CACHE_DIR",
    "SGLANG_DG_CACHE_DIR",
    "SGLANG_CACHE_DIR",
    "TILELANG_CACHE_DIR",
    "CUDA_CACHE_PATH",
)
"""Variables that move a cache (triton 3.6 `knobs.py`, torch 2.11 `cache_dir_utils.py`, flashinfer
0.6 `jit/env.py`, tvm-ffi 0.1.11 `cpp/extension.py`, SGLang 0.5.17 and 0.5.23 `environ.py`)."""

_LAYOUT = (
    *("tp-size", "pp-size", "dp-size", "enable-dp-attention", "nnodes", "device"),
    *("base-gpu-id", "gpu-id-step"),
)
"""Flags that choose GPUs."""

# Runs in the server's interpreter, so standard library only. Versions come from the metadata of the
# distributions, because importing torch or sglang takes seconds.
#
# PyTorch's own wheels have their build in the local version ("2.9.1+cu128"). Wheels from PyPI do
# not, so the CUDA runtime package gives the build. `CUDA_VISIBLE_DEVICES` selects by number or by
# the start of a UUID, and ends at the first invalid entry (CUDA's programming guide, "CUDA
# environment variables"). SGLang moves the caches of other packages under its own cache if its
# `environ.py` has `third_party_cache_defaults` (0.5.23; not in 0.5.17).
_SCRIPT = r"""
import getpass, importlib.metadata, importlib.util, json, os, platform, re, socket, subprocess
import tempfile

def version(*names):
    for name in names:
        try:
            return importlib.metadata.version(name)
        except Exception:
            pass

def output_of(*command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=20)
    except Exception:
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""

def cpu():
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            found = [line for line in lines if line.startswith("model name")]
        if found:
            name = found[0].split(":", 1)[1].strip()
    except OSError:
        pass
    return "%s x %s" % (os.cpu_count(), name)

def torch():
    found = version("torch")
    if found and "+" not in found:
        for cuda in ("13", "12", "11"):
            if version("nvidia-cuda-runtime-cu" + cuda):
                return "%s (cu%s)" % (found, cuda)
        if version("nvidia-cuda-runtime"):
            return "%s (cu%s)" % (found, version("nvidia-cuda-runtime").split(".")[0])
    return found

def caches():
    def under(*parts):
        return os.path.join(os.path.expanduser("~"), *parts)

    moved, given = None, os.environ.get
    own = os.path.expanduser(given("SGLANG_CACHE_DIR") or under(".cache", "sglang"))
    try:
        folder = os.path.dirname(importlib.util.find_spec("sglang").origin or "")
        with open(os.path.join(folder, "srt", "environ.py"), encoding="utf-8") as source:
            moved = own if "def third_party_cache_defaults" in source.read() else None
    except Exception:
        pass
    try:
        user = getpass.getuser()
    except Exception:
        user = "uid_%d" % os.getuid()
    base = given("FLASHINFER_WORKSPACE_BASE") or moved or under()
    return {
        "sglang": own,
        "triton": given("TRITON_CACHE_DIR") or (
            os.path.join(moved, "triton") if moved
            else os.path.join(given("TRITON_HOME") or under(), ".triton", "cache")),
        "inductor": given("TORCHINDUCTOR_CACHE_DIR") or (
            os.path.join(moved, "inductor") if moved
            else os.path.join(tempfile.gettempdir(), "torchinductor_" + user)),
        "flashinfer": os.path.join(base, ".cache", "flashinfer"),
        "tvm_ffi": given("TVM_FFI_CACHE_DIR") or under(".cache", "tvm-ffi"),
        "deep_gemm": given("SGLANG_DG_CACHE_DIR") or (
            os.path.join(moved, "deep_gemm") if moved else under(".cache", "deep_gemm")),
        "cuda": given("CUDA_CACHE_PATH") or (
            os.path.join(moved, "nv") if moved else under(".nv", "ComputeCache")),
    }

gpus = []
for line in output_of("nvidia-smi", "--query-gpu=index,uuid,driver_version,name",
                 "--format=csv,noheader").splitlines():
    parts = [part.strip() for part in line.split(",", 3)]
    if len(parts) == 4:
        gpus.append(dict(zip(("index", "uuid", "driver", "name"), parts)))
driver = gpus[0]["driver"] if gpus else None
# The header has escape codes even if the output is no terminal (driver 580).
topology = re.sub("\x1b\\[[0-9;]*m", "", output_of("nvidia-smi", "topo", "-m")).strip()
if len(gpus) < 2:
    topology = ""
chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
if chosen is not None and gpus:
    seen = []
    for word in (word.strip() for word in chosen.split(",")):
        match = [g for g in gpus if g["index"] == word
                 or (len(word) > 4 and g["uuid"].startswith(word))]
        if len(match) != 1:
            break
        seen += match
    # The driver does not list MIG slices as GPUs, so their GPUs are unknown.
    gpus = seen if "MIG" not in chosen else []
print(json.dumps({
    "machine": {
        "host": socket.gethostname(),
        "sglang": version("sglang"),
        "torch": torch(),
        "nccl": version("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
        "python": platform.python_version(),
        "driver": driver,
        "gpus": [gpu["name"] for gpu in gpus],
        "topology": topology or None,
        "kernel": platform.release(),
        "cpu": cpu(),
        "caches": caches(),
    },
    "uuids": [gpu["uuid"] for gpu in gpus],
}))
"""

_TIMEOUT_S = 120.0

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d+)")
_NVLINK = re.compile(r"NV\d+")
_PCIE = {"PIX", "PXB", "PHB", "NODE", "SYS"}


def read_machine(
    environment: ServerEnvironment, variables: Mapping[str, str | None] | None = None
) -> tuple[Machine, tuple[str, ...]]:
    """Read versions, GPUs and topology in a server environment.

    `nvidia-smi` gives GPUs, driver and topology, also behind a command prefix. Without it they stay
    empty (ROCm, CPU).

    Args:
        environment: Environment of the servers.
        variables: Variables of the servers, for example `CUDA_VISIBLE_DEVICES`.

    Returns:
        The record that is stored with every launch, and the UUIDs of its GPUs in the same order.

    Raises:
        EnvironmentUnusableError: The interpreter could not be run.
    """
    found = environment.run_script(_SCRIPT, variables=variables, timeout_s=_TIMEOUT_S)
    return Machine.from_dict(found["machine"]), tuple(found["uuids"])


def device_names(study: Study, uuids: tuple[str, ...]) -> tuple[str, ...]:
    """Devices that the servers of a study need for themselves, sorted: GPUs, or the CPU.

    Args:
        study: The study.
        uuids: UUIDs of the visible GPUs, from `read_machine`.
    """
    used = sorted({number for flags in _layouts(study) for number in gpus_used(flags)})
    if not used:
        return ("cpu",)
    if uuids:
        visible = [uuid.removeprefix("GPU-") for uuid in uuids]
    else:  # no NVIDIA driver, or MIG slices
        chosen = study.server.env.get("CUDA_VISIBLE_DEVICES") or os.environ.get(
            "CUDA_VISIBLE_DEVICES", ""
        )
        words = (word.strip() for word in str(chosen).split(","))
        visible = [word.removeprefix("GPU-") for word in words if word]
    if "CUDA_VISIBLE_DEVICES" in {*study.space.env, *_production(study, "env")}:
        # The GPUs differ between launches.
        return tuple(sorted(f"gpu-{name}" for name in visible)) or ("gpus",)
    names = (visible[n] if n < len(visible) else str(n) for n in used)
    return tuple(sorted(f"gpu-{name}" for name in names))


def gpus_used(flags: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of the visible GPUs that a server uses on one node; empty without CUDA.

    `base-gpu-id` and `gpu-id-step` choose them (0.5.23, data_parallel_controller).
    """
    first, step = flags.get("base-gpu-id") or 0, flags.get("gpu-id-step") or 1
    return tuple(int(first) + int(step) * n for n in range(gpus_of_node(flags)))


def _layouts(study: Study) -> Iterator[dict[str, Any]]:
    """Every combination of the flags that choose GPUs."""
    fixed = study.server.flags
    yield dict(fixed)
    lists = (study.space.flags, *(part.flags for part in study.space.speculation))
    choices = {
        name: {value for flags in lists for value in flags.get(name, (None,))}
        for name in _LAYOUT
        if any(name in flags for flags in lists)
    }
    for values in itertools.product(*choices.values()):
        yield {**fixed, **dict(zip(choices, values, strict=True))}
    yield {**fixed, **_production(study, "flags")}


def _production(study: Study, what: Literal["flags", "env"]) -> dict[str, Any]:
    """Flags or variables of the production command; empty without a usable command."""
    try:
        configuration = production_configuration(study)
    except ValueError:
        return {}
    return {} if configuration is None else dict(getattr(configuration, what))


def parse_topology(text: str) -> tuple[tuple[tuple[int, int], str], ...]:
    """Read the kind of link between each pair of GPUs from `nvidia-smi topo -m`."""
    rows = [_ANSI.sub("", line).split() for line in text.splitlines()]
    header = next((row for row in rows if row[:1] == ["GPU0"] and "X" not in row[:2]), [])
    columns = [int(found[1]) for word in header if (found := _GPU.fullmatch(word))]
    out: list[tuple[tuple[int, int], str]] = []
    for row in rows:
        # A row starts with its name and one word per GPU. Network cards and CPUs follow.
        if row is header or not row or not (found := _GPU.fullmatch(row[0])):
            continue
        gpu = int(found[1])
        cells = zip(columns, row[1:], strict=False)
        out += [((gpu, other), kind) for other, kind in cells if gpu < other]
    return tuple(out)


def joined_by_nvlink(topology: str) -> bool:
    """Whether `nvidia-smi topo -m` shows NVLink between every two GPUs of a machine."""
    return link_of(kind for _, kind in parse_topology(topology)) == "nvlink"


def link_of(kinds: Iterable[str]) -> Link | None:
    """`nvlink` if every pair has NVLink, as SGLang's own kernel requires (0.5.23); else `pcie`."""
    known = [kind for kind in kinds if _NVLINK.fullmatch(kind) or kind in _PCIE]
    if not known:
        return None
    return "nvlink" if all(_NVLINK.fullmatch(kind) for kind in known) else "pcie"
