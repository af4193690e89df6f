"""Environment of a server's own processes, with the variables that SGLang sets itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psutil

from search_spaces.secrets import is_secret, redact_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BEARING: Final = (
    "CUDA_",
    "DG_",
    "FLASHINFER_",
    "GLOO_",
    "HF_",
    "LD_",
    "NCCL_",
    "NVSHMEM_",
    "OMP_",
    "PYTORCH_",
    "SGLANG_",
    "SGL_",
    "TILELANG_",
    "TORCH",
    "TRANSFORMERS_",
    "TRITON_",
    "TRTLLM_",
    "TVM_FFI_",
)
"""Prefixes of variables that affect serving."""

_OF_NVIDIA: Final = frozenset({"NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES"})
"""Other `NVIDIA_` variables describe the image (`NVIDIA_REQUIRE_CUDA` has 3 kB), not serving."""

_OF_ONE_LAUNCH: Final = frozenset({"SGLANG_RUN_ID"})
"""Differs in every launch and has no effect (0.5.23)."""

_SCHEDULER: Final = "sglang::scheduler"
"""Process name of SGLang's schedulers (0.5.9 to 0.5.23)."""


def is_recorded(name: str) -> bool:
    """Whether a variable affects serving and may be stored."""
    bears = name.startswith(_BEARING) or name in _OF_NVIDIA
    return bears and name not in _OF_ONE_LAUNCH and not is_secret(name)


def recorded(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of an environment that are stored, without secrets."""
    return {
        name: redact_text(value) for name, value in sorted(environ.items()) if is_recorded(name)
    }


def effective_environment(processes: Iterable[psutil.Process]) -> dict[str, str]:
    """Variables that the scheduler of a launch was started with.

    SGLang sets `NCCL_CUMEM_ENABLE`, `NCCL_NVLS_ENABLE`, `CUDA_DEVICE_MAX_CONNECTIONS` and others
    before it starts its schedulers, so that only a scheduler shows them (engine.py, 0.5.23).
    Variables that a scheduler sets later are not visible. Without a known scheduler, the process
    with the most recorded variables is read.

    Args:
        processes: Processes of the launch.

    Returns:
        `recorded` variables; empty if no process can be read.
    """
    best: tuple[bool, int, int] | None = None
    found: dict[str, str] = {}
    for process in processes:
        try:
            whole, words = process.environ(), process.cmdline()
        except (psutil.Error, OSError):
            continue
        if not whole:
            continue  # setproctitle overwrote it with the process's name (SPT_NOENV prevents this)
        environ = recorded(whole)
        rank = (any(_SCHEDULER in word for word in words), len(environ), -process.pid)
        if best is None or rank > best:
            best, found = rank, environ
    return found
