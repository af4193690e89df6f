"""Servers whose decoding runs on SGLang's own all-reduce kernel, so that NCCL has no effect.

Two configurations that differ only in NCCL variables then decode alike, because every all-reduce of
a decode or verify forward is smaller than the kernel's limit. NCCL runs only larger ones (prefills)
and the gathering of logits.

Read in SGLang 0.5.9, 0.5.17 and 0.5.23, `srt/distributed/`: `parallel_state.py` (`all_reduce`:
MSCCL++, NCCL's symmetric memory and, in 0.5.23, FlashInfer's precede the kernel, everything else
follows), `device_communicators/custom_all_reduce.py:41` and `custom_all_reduce_v2.py` (limits).
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.gpus import runs_on_cuda
from search_spaces.nccl.allreduce import OWN_OFF
from search_spaces.nccl.variables import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study
    from search_spaces.study_file.values import FixedValue


MIB = 1024 * 1024

V1_BYTES = 8 * MIB
"""Largest all-reduce of the older kernel (`CustomAllreduce._MAX_CAR_SIZE`, 0.5.9 to 0.5.23)."""

V2_BYTES = 16 * MIB
"""Largest all-reduce of the newer kernel unless a variable says otherwise: every tuned threshold is
at least that, and is cut to it (0.5.17, 0.5.23: `configs/custom_all_reduce_v2.py`)."""

V2_LIMIT = "SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB"
"""SGLang's variable for the newer kernel's limit."""

NCCL_UNUSED = "nccl_unused"
"""Kind of the failure of a point that is not launched since NCCL has no part in its decoding."""

_ALONE = {
    "pp-size": 1,
    "nnodes": 1,
    "attn-cp-size": 1,
    "dcp-size": 1,
    "enable-dp-attention": False,
    "enable-mscclpp": False,
    "enable-symm-mem": False,
    "enable-deterministic-inference": False,
    "enable-attn-tp-input-scattered": False,
    "moe-a2a-backend": "none",
    OWN_OFF: False,
}
"""Flags under which the kernel is all that decoding has between GPUs: with another value decoding
exchanges something by other means as well, or has no such kernel. That may be NCCL or not: nothing
is said of NCCL's variables then."""

_DECIDING = ("device", "tp-size", "ep-size", *_ALONE)
_DECIDING_PREFIXES = ("SGLANG_", "CUDA_", "PYTORCH_", "TORCH_")
_WIDEST_HIDDEN = 16384
"""Of the widest published model (Llama 3.1 405B), for one whose own width is not known here."""

_MOST_ADAPTIVE_TOKENS = 16
"""Of a server that chooses its steps itself: twice those of its deepest candidate, 7 steps (0.5.17,
0.5.23), as a file of its own may have deeper ones."""

_FLOAT32 = ("float", "float32")


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """SGLang's own all-reduce kernel in a server.

    Attributes:
        name: `"custom all-reduce v2"`.
        most_bytes: Size of the largest all-reduce that it runs.
        seen: Origin of this fact: `"log of launch 0"`.
    """

    name: str
    most_bytes: int
    seen: str = ""


def may_have_own_kernel(study: Study, configuration: Configuration) -> bool:
    """Whether a configuration allows the kernel to run all of decoding.

    Whether it does depends on the machine; the server's log shows it.
    """
    flags = _flags(study, configuration)
    tp = flags.get("tp-size") or 1
    if not runs_on_cuda(flags) or not isinstance(tp, int) or tp < 2:
        return False
    # A draft on fewer GPUs has separate groups, whose kernel is unknown.
    if configuration.draft_tp not in {None, tp}:
        return False
    return all((flags.get(name) or usual) == usual for name, usual in _ALONE.items())


def scope(study: Study, configuration: Configuration) -> Hashable:
    """Settings that decide whether a server has the kernel."""
    flags = _flags(study, configuration)
    env = {**study.server.env, **dict(configuration.env)}
    return (
        tuple((name, flags.get(name) or None) for name in _DECIDING),
        tuple(sorted((n, v) for n, v in env.items() if n.startswith(_DECIDING_PREFIXES) and v)),
    )


def carries_decoding(study: Study, configuration: Configuration, kernel: OwnKernel) -> bool:
    """Whether every all-reduce of decoding is within the kernel's limit, at every operating point.

    False also if unknown, and if the study limits time to first token: NCCL runs prefills above the
    limit.
    """
    if not may_have_own_kernel(study, configuration):
        return False
    tokens = _tokens_at_once(study, configuration)
    if tokens is None or tokens * token_bytes(study) > kernel.most_bytes:
        return False
    return not _counts_prefill(study) or _prefill_fits(study, configuration, kernel)


def token_bytes(study: Study) -> int:
    """Bytes of an all-reduce per token: hidden size times bytes of the model's type."""
    wide = str(study.server.flags.get("dtype") or "auto") in _FLOAT32
    return (hidden_size(study.model.path) or _WIDEST_HIDDEN) * (4 if wide else 2)


@functools.cache
def hidden_size(model_path: str) -> int | None:
    """Hidden size of a local model with `config.json`; `None` for other models."""
    try:
        config = json.loads((Path(model_path) / "config.json").read_text(encoding="utf-8"))
        return int(config.get("hidden_size") or config["text_config"]["hidden_size"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _tokens_at_once(study: Study, configuration: Configuration) -> int | None:
    """Largest number of tokens of a decode or verify forward, padded; `None` if unknown."""
    flags = _flags(study, configuration)
    most = flags.get("max-running-requests")
    at_once = [
        min(
            (n for n in (point.concurrency, most) if isinstance(n, int) and n > 0),
            default=None,
        )
        for point in study.to_workload().points
    ]
    if not at_once or None in at_once:
        return None
    batch = max(n for n in at_once if n is not None)
    speculation = configuration.speculation
    width = speculation.num_draft_tokens if speculation.enabled else 1
    if flags.get("speculative-adaptive"):
        width = max(width or 1, _MOST_ADAPTIVE_TOKENS)
    if width is None:  # the draft decides the size of the block
        return None
    # Graphs exist for some batch sizes only; a batch is padded to the next one.
    return (1 << (batch - 1).bit_length()) * width


def _counts_prefill(study: Study) -> bool:
    return any(_prefill_limits(study))


def _prefill_limits(study: Study) -> Iterator[bool]:
    objective, goodput = study.objective, study.to_workload().goodput
    yield objective.metric.name.startswith("ttft")
    yield any(name.startswith("ttft") for name in objective.subject_to)
    yield goodput is not None and goodput.ttft_ms is not None


def _prefill_fits(study: Study, configuration: Configuration, kernel: OwnKernel) -> bool:
    chunk = _flags(study, configuration).get("chunked-prefill-size")
    return isinstance(chunk, int) and 0 < chunk * token_bytes(study) <= kernel.most_bytes


def _flags(study: Study, configuration: Configuration) -> Mapping[str, FixedValue]:
    return {**study.server.flags, **dict(configuration.flags)}


def nccl_knobs(study: Study) -> tuple[str, ...]:
    """NCCL variables with several values in a study."""
    return tuple(
        name
        for name, choices in study.space.env.items()
        if name in VARIABLES and len(set(choices)) > 1
    )


def without_nccl(configuration: Configuration) -> Configuration:
    """The configuration without NCCL variables.

    Equal for configurations that differ only in NCCL variables: SGLang's argument checks do not
    depend on these variables (0.5.9 to 0.5.23).
    """
    env = tuple((n, None if n in VARIABLES else value) for n, value in configuration.env)
    return replace(configuration, env=env)
