"""Whether a process uses a GPU, seen from outside it."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

CUDA_FILE = "/dev/nvidia-uvm"
"""Open once CUDA is initialised (`cuInit`), which takes no GPU memory yet; not in a process that
only asks the driver (NVML)."""

ROCM_FILE = "/dev/kfd"
"""Open in a process that uses ROCm."""

_QUERY = ("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
_LINE = re.compile(r"\s*(\d+)\s*,\s*(\d*)")
_ANSWER_S = 30.0


def has_open(pid: int, file: str) -> bool:
    """Whether a process has the file open; where that can't be seen, it may have."""
    try:
        files = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return psutil.pid_exists(pid)
    for link in files:
        with suppress(OSError):
            if str(link.readlink()) == file:
                return True
    return False


def gpu_memory_mb(pid: int) -> float | None:
    """GPU memory that a process holds, as NVIDIA's driver says; `None` without its tool.

    In a container the tool may list the host's numbers of processes, or none: 0 is no proof there.
    A process that is listed without an amount (MIG) counts as 1 MB, as it has a CUDA context.
    """
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [match for line in done.stdout.splitlines() if (match := _LINE.match(line))]
    return sum(float(row[2] or 1) for row in rows if int(row[1]) == pid)
