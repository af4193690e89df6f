"""What a server's log says of SGLang's own all-reduce kernel.

`/server_info` tells only whether it was asked for (`disable_custom_all_reduce`), not whether the
GPUs let it run. The log does, at SGLang's usual log level.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.nccl.own_all_reduce import MIB, V1_BYTES, V2_BYTES, V2_LIMIT, OwnKernel

if TYPE_CHECKING:
    from collections.abc import Mapping

_V2 = re.compile(r"\] All Reduce config: symmetric_memory = (?!.*\bpull = False)")
"""`custom_all_reduce_v2.py`, first rank: 0.5.17 and 0.5.23 (there also for some models' kernels
of another purpose, which have no pull half)."""

_V1 = re.compile(r"\] Registering [1-9]\d* cuda graph addresses")
"""`custom_all_reduce.py`, first rank, 0.5.9 to 0.5.23: the captured graphs use it."""

_REFUSED = re.compile(r"Setup Custom allreduce failed with|disable_custom_all_reduce=True")
"""`parallel_state.py`, and the arguments as SGLang resolved them: deterministic inference switches
the kernel off."""

_REFUSES = re.compile(r"Custom[Aa]ll[Rr]educe\w* is disabled (?:because|due to)")
"""Warnings of `custom_all_reduce.py` and `custom_all_reduce_utils.py`. The newer kernel's may come
before the older one runs, so they count only where neither was seen."""

_TELLS = "server_args="
"""`engine.py`, at level `info`: without it the kernel would not be told of either."""

_READY = "The server is fired up and ready to roll"
_MOST_BYTES = 32 * MIB


def own_kernel_in(
    log: Path | str, environment: Mapping[str, str] | None = None, *, nvlink: bool = False
) -> OwnKernel | None:
    """SGLang's own kernel, where the log of a server shows that it runs.

    `None` where it does not, and where that cannot be told.

    Args:
        log: The server's log file.
        environment: The server's variables, of which one sets the limit.
        nvlink: Whether the server served, on a machine where NVLink joins all GPUs: then it is
            enough that a log above level `info` holds no warning that the kernel is off.
    """
    try:
        with Path(log).open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    start_up = text.partition(_READY)[0]
    if _REFUSED.search(start_up):
        return None
    if _V2.search(start_up):
        return OwnKernel("custom all-reduce v2", _v2_limit(environment or {}))
    if _V1.search(start_up):
        return OwnKernel("custom all-reduce", V1_BYTES)
    if nvlink and _TELLS not in start_up and not _REFUSES.search(start_up):
        return OwnKernel("custom all-reduce over NVLink", V1_BYTES)
    return None


def _v2_limit(environment: Mapping[str, str]) -> int:
    """Never above the usual limit: the tuned thresholds of some GPUs are no higher."""
    text = environment.get(V2_LIMIT, "")
    return min(V2_BYTES, int(text) * 1024) if text.isascii() and text.isdigit() else V2_BYTES
