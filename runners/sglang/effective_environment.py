"""What a server's own processes have in their environment: SGLang writes some of it itself."""

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
"""Beginnings of the names that bear on serving."""

_OF_NVIDIA: Final = frozenset({"NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES"})
"""The rest of these (`NVIDIA_REQUIRE_CUDA`: 3 kB) is of the image, and says nothing of serving."""

_OF_ONE_LAUNCH: Final = frozenset({"SGLANG_RUN_ID"})
"""Other in every launch, and without effect on it (0.5.23)."""

_SCHEDULER: Final = "sglang::scheduler"
"""How SGLang's schedulers call themselves (0.5.9 to 0.5.23)."""


def is_recorded(name: str) -> bool:
    """Whether a variable of this name bears on serving, and may be stored."""
    bears = name.startswith(_BEARING) or name in _OF_NVIDIA
    return bears and name not in _OF_ONE_LAUNCH and not is_secret(name)


def recorded(environ: Mapping[str, str]) -> dict[str, str]:
    """What of an environment is stored."""
    return {
        name: redact_text(value) for name, value in sorted(environ.items()) if is_recorded(name)
    }


def effective_environment(processes: Iterable[psutil.Process]) -> dict[str, str]:
    """What the scheduler among a launch's processes was started with.

    The process that was started keeps, as the kernel shows it, what it was given; SGLang sets
    `NCCL_CUMEM_ENABLE`, `NCCL_NVLS_ENABLE`, `CUDA_DEVICE_MAX_CONNECTIONS` and others before it
    starts its schedulers, so these show them (engine.py, 0.5.23). What a scheduler sets for itself
    later cannot be seen. Without a process that is known for a scheduler, the one with the most to
    tell is taken; one whose environment cannot be seen any more tells nothing.

    Args:
        processes: Those of the launch.

    Returns:
        `recorded` variables; empty where no process can be read.
    """
    best: tuple[bool, int, int] | None = None
    found: dict[str, str] = {}
    for process in processes:
        try:
            whole, words = process.environ(), process.cmdline()
        except (psutil.Error, OSError):
            continue
        if not whole:
            continue  # setproctitle wrote the process's name over it (SPT_NOENV keeps it off)
        environ = recorded(whole)
        rank = (any(_SCHEDULER in word for word in words), len(environ), -process.pid)
        if best is None or rank > best:
            best, found = rank, environ
    return found
