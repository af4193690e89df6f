"""Method of all-reduce in decoding as far as a study determines it, and settings without effect.

Read in SGLang 0.5.23, `srt/distributed/`: `parallel_state.py:690-1000` (order: SGLang's own kernel,
PCIe-IPC, MSCCL++, torch's symmetric memory, NCCL),
`device_communicators/custom_all_reduce_utils.py:443-511` (conditions under which the own kernel is
off), `pcie_ipc_ar.py`. The GPUs are unknown here; `tuner init` inspects them.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.gpus import runs_on_cuda
from search_spaces.nccl.variables import VARIABLES
from search_spaces.sglang_variables import YES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study
    from search_spaces.study_file.values import FixedValue


OWN_OFF = "disable-custom-all-reduce"
"""SGLang's flag that disables its own all-reduce kernel."""

PCIE_IPC = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"
"""SGLang's variable that enables FlashInfer's all-reduce kernel over PCIe."""

OWN_SIZES = (2, 4, 6, 8)
"""Tensor-parallel sizes of SGLang's own kernel (`custom_all_reduce.py:41`)."""

PCIE_IPC_SIZES = (2, 4, 8)
"""Tensor-parallel sizes of FlashInfer's kernel (`pcie_ipc_ar.py:_SUPPORTED_WORLD_SIZES`)."""

_IN_NCCLS_PLACE = {
    "enable-mscclpp": "MSCCL++ carries small all-reduces",
    "enable-torch-symm-mem": "torch's symmetric memory runs all-reduces on H100 and B200",
}
_DETERMINISTIC = ("NCCL_ALGO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
_LOGGING = ("NCCL_DEBUG", "NCCL_SOCKET", "NCCL_IB", "NCCL_HOSTID")


def advice(study: Study) -> Iterator[str]:
    """Warnings about settings that have no effect, or that hang some hosts."""
    searched = tuple(
        name
        for name, choices in study.space.env.items()
        if name in VARIABLES and not name.startswith(_LOGGING) and set(choices) != {None}
    )
    sizes = _flag(study, "tp-size", unset=1)
    alone = sizes == {1} and _flag(study, "pp-size", unset=1) == {1}
    if alone:
        if searched:
            yield (
                f"{_and(searched)} {_are(searched)} searched at tp-size 1, where nothing is "
                "reduced between GPUs: every choice is the same server; leave "
                f"{'it' if len(searched) == 1 else 'them'} out"
            )
    else:
        yield from _own_kernel(study, searched, sizes)
        yield from _pcie_ipc(study, searched, sizes)
        yield from _peer_access(study, sizes)
    yield from _overwritten(study)


def _own_kernel(study: Study, searched: tuple[str, ...], sizes: set[FixedValue]) -> Iterator[str]:
    own = [size for size in sizes if size in OWN_SIZES]
    if not searched:
        return
    if own and True not in _flag(study, OWN_OFF):
        where = (
            "if the two GPUs have peer access"
            if own == [2]
            else "if NVLink connects all GPUs (and at tp-size 2 also over PCIe)"
        )
        yield (
            f"{_and(searched)} {_are(searched)} searched, but NCCL runs decoding only without "
            f"SGLang's own all-reduce kernel, which is on {where}. If the kernel is on here, these "
            f"points are shown as inactive and not launched; search `{OWN_OFF}: [null, true]` too"
        )
    for flag, what in _IN_NCCLS_PLACE.items():
        if _flag(study, flag) == {True}:
            yield f"{_and(searched)} {_are(searched)} searched, but with {flag} {what}, not NCCL"


def _pcie_ipc(study: Study, searched: tuple[str, ...], sizes: set[FixedValue]) -> Iterator[str]:
    values = _env(study, PCIE_IPC)
    if not any(_is_on(value) for value in values):
        return
    fitting = [size for size in sizes if size in PCIE_IPC_SIZES]
    if not fitting:
        yield f"{PCIE_IPC} has no effect: it runs at tp-size {_or(PCIE_IPC_SIZES)} only"
        return
    if _flag(study, "enable-deterministic-inference") == {True}:
        yield f"{PCIE_IPC} has no effect: enable-deterministic-inference disables it"
        return
    if 2 in fitting and True not in _flag(study, OWN_OFF):
        yield (
            f"{PCIE_IPC} has no effect at tp-size 2 with peer access, because SGLang's own "
            f"all-reduce kernel runs decoding there: write `{OWN_OFF}: true` under "
            "server.flags"
        )
    free = tuple(name for name in searched if name not in _held_beside_ipc(study))
    if free and all(_is_on(value) for value in values):
        yield (
            f"{_and(free)} {_are(free)} searched, but FlashInfer's kernel runs decoding "
            f"({PCIE_IPC}); NCCL only runs prefill and the gathering of logits"
        )
    elif free:
        example = ", ".join(f"{name}: null" for name in free)
        yield (
            f"{_and(free)} {_are(free)} also searched with FlashInfer's kernel, which runs "
            f"decoding ({PCIE_IPC}), so launches are wasted: write `conditions: [{{when: {{env: "
            f'{{{PCIE_IPC}: "1"}}}}, then: {{env: {{{example}}}}}}}]` under space'
        )


def _held_beside_ipc(study: Study) -> set[str]:
    """Variables that a condition fixes if PCIe-IPC is on."""
    held: set[str] = set()
    for condition in study.space.conditions:
        if any(_is_on(value) for value in condition.when.env.get(PCIE_IPC, ())):
            held |= {name for name, values in condition.then.env.items() if len(values) == 1}
    return held


def _peer_access(study: Study, sizes: set[FixedValue]) -> Iterator[str]:
    conditions = study.space.conditions
    off = "1" in _env(study, "NCCL_P2P_DISABLE") or "LOC" in _env(study, "NCCL_P2P_LEVEL")
    if not off or 2 not in sizes or _flag(study, OWN_OFF) == {True}:
        return
    held = ("NCCL_P2P_DISABLE" in c.when.env and OWN_OFF in c.then.flags for c in conditions)
    if any(held):
        return
    yield (
        "NCCL without peer access (NCCL_P2P_DISABLE 1, or level LOC) leaves SGLang's own kernel "
        "on, which uses peer access all the same, and was seen to hang where NCCL needs it "
        f"off: write `{OWN_OFF}: true` under server.flags, or `conditions: [{{when: {{env: "
        f'{{NCCL_P2P_DISABLE: "1"}}}}, then: {{flags: {{{OWN_OFF}: true}}}}}}]` under space'
    )


def _overwritten(study: Study) -> Iterator[str]:
    """Variables that SGLang sets in every server."""
    given = {*study.space.env, *(n for n, v in study.server.env.items() if v is not None)}
    if "CUDA_DEVICE_MAX_CONNECTIONS" in given:
        yield (
            "CUDA_DEVICE_MAX_CONNECTIONS has no effect: SGLang 0.5.23 sets it to 8 in every server "
            "(entrypoints/engine.py:1920); leave it out"
        )
    deterministic = [name for name in _DETERMINISTIC if name in given]
    if deterministic and _flag(study, "enable-deterministic-inference") == {True}:
        yield (
            f"{_and(deterministic)} {'has' if len(deterministic) == 1 else 'have'} no effect: with "
            "enable-deterministic-inference SGLang 0.5.23 sets its own "
            "(arg_groups/attention_hook.py:676-698)"
        )
    for name, flags in (
        ("NCCL_CUMEM_ENABLE", ("enable-symm-mem",)),
        ("NCCL_NVLS_ENABLE", ("enable-symm-mem", "enable-nccl-nvls")),
    ):
        by = [flag for flag in flags if _flag(study, flag) == {True}]
        if name in given and by:
            yield (
                f"{name} has no effect: with {by[0]} SGLang 0.5.23 sets it to 1 "
                "(entrypoints/engine.py:1898-1914); leave it out"
            )


def _flag(study: Study, name: str, unset: FixedValue = None) -> set[FixedValue]:
    """All values of a flag in servers of a study."""
    own = {value for part in study.space.speculation for value in part.flags.get(name, ())}
    everywhere = all(name in part.flags for part in study.space.speculation)
    values: set[FixedValue] = set(study.space.flags.get(name, ()))
    if not values and not everywhere:
        values = {study.server.flags.get(name)}
    return {unset if value is None else value for value in values | own}


def _env(study: Study, name: str) -> set[str | None]:
    """All values of a variable in servers of a study."""
    return set(study.space.env.get(name, (study.server.env.get(name),)))


def _is_on(value: str | None) -> bool:
    return value is not None and value.lower() in YES


def _are(names: tuple[str, ...]) -> str:
    return "is" if len(names) == 1 else "are"


def _and(names: tuple[str, ...] | list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _or(sizes: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, sizes[:-1]))} or {sizes[-1]}"


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
