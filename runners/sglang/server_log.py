"""Read a server's log: start-up phases, new lines, the end, and SGLang's own all-reduce kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING

from search_spaces.nccl.all_reduce import MIB, V1_BYTES, V2_BYTES, V2_LIMIT, OwnKernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIRST = "arguments"
"""Interpreter start, imports and argument handling, up to the first line of a scheduler."""

GRAPHS = "cuda_graph"

READY = "ready"
"""SGLang's own warm-up request was answered. This is no proof of readiness: if another server has
the port, that server answers the request (0.5.23)."""

_READY_LINE = "The server is fired up and ready to roll"

# Lines of 0.5.9, 0.5.17 and 0.5.23.
_BEGINS = (
    ("distributed", re.compile(r"Init (torch distributed|parallel) begin")),
    ("weights", re.compile(r"Load weight begin")),
    ("kv_cache", re.compile(r"Load weight end")),
    (GRAPHS, re.compile(r"Capture .*(graph|begin)|Capturing batches", re.IGNORECASE)),
    ("warmup", re.compile(r"Application startup complete|Uvicorn running on")),
    (READY, re.compile(_READY_LINE)),
)
_OTHER_RANK = re.compile(r"^\[[^\]]*\b(?:TP|PP|DP|EP)[1-9]\d*[^\]]*\]")


def phase_begun(line: str) -> str | None:
    """Phase that begins with this line of the log, if any.

    Lines of all ranks but the first are ignored, since ranks do not run in step.
    """
    if _OTHER_RANK.match(line):
        return None
    return next((phase for phase, pattern in _BEGINS if pattern.search(line)), None)


class LogFollower:
    """Reads a growing log, each line once."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open(encoding="utf-8", errors="replace", newline="\n")
        self._partial = ""

    def lines(self) -> Iterator[str]:
        """Complete lines since the last call."""
        while line := self._file.readline():
            self._partial += line
            if self._partial.endswith("\n"):
                yield self._partial.rstrip("\r\n")
                self._partial = ""

    def close(self) -> None:
        """Close the log. Idempotent."""
        self._file.close()


def log_tail(path: Path, size: int = 256 * 1024) -> str:
    """Last `size` bytes of a log; empty if the log cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - size))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


# `/server_info` reports only whether SGLang's own all-reduce kernel was requested
# (`disable_custom_all_reduce`). The log reports whether the GPUs support the kernel.

_V2 = re.compile(r"\] All Reduce config: symmetric_memory = (?!.*\bpull = False)")
"""`custom_all_reduce_v2.py`, first rank, 0.5.17 and 0.5.23. Kernels with another purpose
have no pull half and are excluded."""

_V1 = re.compile(r"\] Registering [1-9]\d* cuda graph addresses")
"""`custom_all_reduce.py`, first rank, 0.5.9 to 0.5.23: captured graphs use the kernel."""

_OFF = re.compile(r"Setup Custom allreduce failed with|disable_custom_all_reduce=True")
"""`parallel_state.py`, and SGLang's resolved arguments (deterministic inference disables the
kernel)."""

_WARNING = re.compile(r"Custom[Aa]ll[Rr]educe\w* is disabled (?:because|due to)")
"""`custom_all_reduce.py` and `custom_all_reduce_utils.py`. The newer kernel may warn before the
older kernel runs, so these warnings count only if no kernel was found."""

_ARGUMENTS = "server_args="
"""`engine.py` at level `info`. Logs without this line do not report the kernel either."""

_MOST_BYTES = 32 * MIB


def own_kernel_in(
    log: Path | str, environment: Mapping[str, str] | None = None, *, nvlink: bool = False
) -> OwnKernel | None:
    """SGLang's own kernel, if the log shows that it runs; `None` if it does not, or if unknown.

    Args:
        log: Log file of the server.
        environment: Variables of the server; one of them sets the kernel's limit.
        nvlink: Whether the server served with NVLink between all GPUs. Then a log above level
            `info` without a warning is enough.
    """
    try:
        with Path(log).open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    start_up = text.partition(_READY_LINE)[0]
    if _OFF.search(start_up):
        return None
    if _V2.search(start_up):
        # At most the default, because no GPU has a higher tuned threshold.
        limit = (environment or {}).get(V2_LIMIT, "")
        kib = int(limit) if limit.isascii() and limit.isdigit() else V2_BYTES // 1024
        return OwnKernel("custom all-reduce v2", min(V2_BYTES, kib * 1024))
    if _V1.search(start_up):
        return OwnKernel("custom all-reduce", V1_BYTES)
    if nvlink and _ARGUMENTS not in start_up and not _WARNING.search(start_up):
        return OwnKernel("custom all-reduce over NVLink", V1_BYTES)
    return None
