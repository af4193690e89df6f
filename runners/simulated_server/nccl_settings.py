"""Which NCCL variables a server dies of.

Recorded from SGLang 0.5.17 with NCCL 2.28 on two H200: `NCCL_PROTO=FOO` and
`NCCL_ALGO=CollnetDirect` fail when the groups are made, `NCCL_ALGO=Tree` in the capture of graphs,
because an all-gather has no tree; `allreduce:tree` works.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROTOCOLS = frozenset({"LL", "LL128", "SIMPLE"})


def nccl_refusal(tp_size: int, environ: Mapping[str, str] | None = None) -> str | None:
    """The traceback (see `data/deaths`) that NCCL's variables lead to; `None` if they work.

    Args:
        tp_size: Ranks; one alone has nobody to talk to.
        environ: The variables; the process's own if not given.
    """
    if tp_size < 2:
        return None
    env = os.environ if environ is None else environ
    protocols = env.get("NCCL_PROTO", "")
    if protocols and ";" not in protocols and ":" not in protocols:
        words = {word.strip().upper() for word in protocols.lstrip("^").split(",")}
        if words - _PROTOCOLS:
            return "nccl_protocol"
    algorithm = env.get("NCCL_ALGO", "").strip().lower()
    if algorithm == "collnetdirect":
        return "nccl_algorithm"
    return "nccl_capture" if algorithm == "tree" else None
