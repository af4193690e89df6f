"""Find SGLang's own all-reduce kernel in a server's log.

`/server_info` reports only whether the kernel was requested (`disable_custom_all_reduce`). The log
reports whether the GPUs support the kernel, at SGLang's default log level.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.nccl.own_all_reduce import MIB, V1_BYTES, V2_BYTES, V2_LIMIT, OwnKernel

if TYPE_CHECKING:
    from collections.abc import Mapping

_V2 = re.compile(r"\] All Reduce config: symmetric_memory = (?!.*\bpull = False)")
"""`custom_all_reduce_v2.py`, first rank, 0.5.17 and 0.5.23. Kernels with another purpose
have no pull half and are excluded."""

_V1 = re.compile(r"\] Registering [1-9]\d* cuda graph addresses")
"""`custom_all_reduce.py`, first rank, 0.5.9 to 0.5.23: captured graphs use the kernel."""

_REFUSED = re.compile(r"Setup Custom allreduce failed with|disable_custom_all_reduce=True")
"""`parallel_state.py`, and SGLang's resolved arguments (deterministic inference disables the
kernel)."""

_REFUSES = re.compile(r"Custom[Aa]ll[Rr]educe\w* is disabled (?:because|due to)")
"""Warnings of `custom_all_reduce.py` and `custom_all_reduce_utils.py`. The newer kernel may warn
before the older kernel runs, so these warnings count only if no kernel was found."""

_TELLS = "server_args="
"""`engine.py` at level `info`. Logs without this line do not report the kernel either."""

_READY = "The server is fired up and ready to roll"
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
    """Limit of v2, at most the default, because no GPU has a higher tuned threshold."""
    text = environment.get(V2_LIMIT, "")
    return min(V2_BYTES, int(text) * 1024) if text.isascii() and text.isdigit() else V2_BYTES
