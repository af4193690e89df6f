"""The number of GPUs that a server uses, from its flags.

A server has `tp-size` x `pp-size` ranks with one GPU each, times `dp-size` unless attention is
data-parallel (SGLang 0.5.23, `managers/data_parallel_controller.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def runs_on_cuda(flags: Mapping[str, object]) -> bool:
    """Return whether a server runs on CUDA, which is the default device."""
    return str(flags.get("device") or "cuda").split(":")[0] == "cuda"


def gpus_of_server(flags: Mapping[str, object]) -> int:
    """Return the GPUs of all nodes; 0 on other devices than CUDA."""
    if not runs_on_cuda(flags):
        return 0
    replicas = 1 if flags.get("enable-dp-attention") else _number(flags, "dp-size")
    return _number(flags, "tp-size") * _number(flags, "pp-size") * replicas


def gpus_of_node(flags: Mapping[str, object]) -> int:
    """Return the GPUs of one node; 0 on other devices than CUDA."""
    return -(-gpus_of_server(flags) // nodes_of(flags))


def nodes_of(flags: Mapping[str, object]) -> int:
    """Return the number of machines that the server spans."""
    return _number(flags, "nnodes")


def _number(flags: Mapping[str, object], name: str) -> int:
    value = flags.get(name)
    return value if isinstance(value, int) and value > 0 else 1
