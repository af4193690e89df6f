"""Settings of all-reduce that can matter on the given GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from search_spaces.nccl.allreduce import OWN_OFF, PCIE_IPC, PCIE_IPC_SIZES
from search_spaces.variables import canonical_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.configuration import Value
    from search_spaces.flags.options import Version
    from tuner.init.hardware import Hardware
    from tuner.init.today import Today

_NO_PCIE_IPC = ("0.5.9", "0.5.17")
_PROTOCOLS = (
    (None, "not set: NCCL chooses, and leaves LL128 off on PCIe (2.30)"),
    ("LL,LL128,Simple", "all three: +12 %; LL128 is forced, as below"),
    ("LL128", "+13 %; forced on PCIe (NVIDIA warns of wrong data): compare its answers"),
    ("Simple", "+11 %"),
    ("LL", "+0 %; small all-reduces got 1.5 times faster on a host with 2 EPYC CPUs"),
)
_LEVELS = (
    (None, "not set: NCCL decides by the CPUs that it finds"),
    ("PHB", "GPUs of the same CPU"),
    ("SYS", "all GPUs: +4 % at 1 request, +8 % at 64, on 4 RTX PRO 6000; hangs on some hosts"),
)
_CHANNELS = (
    (None, "not set: NCCL decides by the topology"),
    ("4", "half as many, should 8 take too much from the model's own kernels"),
    ("8", "+70 % of bandwidth at 32 MB, a prefill's size (8 GPUs, 2 EPYC CPUs)"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A flag or variable with its values.

    Attributes:
        name: Its name.
        values: Values, each with a comment; `None` means not set.
        why: Comment before the entry.
    """

    name: str
    values: tuple[tuple[Value, str], ...]
    why: str


Condition = tuple["Mapping[str, object]", "Mapping[str, object]", str]
"""`when`, `then`, and the comment before them."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """Settings to vary and settings to fix.

    Attributes:
        flags: Flags to vary.
        env: Variables to vary.
        conditions: Pairs of `when` and `then`, each with a comment.
        pinned: Flags to fix, with the reason.
        remark: Comment if nothing is varied.
    """

    flags: tuple[Choice, ...] = ()
    env: tuple[Choice, ...] = ()
    conditions: tuple[Condition, ...] = ()
    pinned: Mapping[str, tuple[Value, str]] = field(default_factory=dict)
    remark: str = ""


def propose(today: Today, hardware: Hardware, version: Version | None = None) -> Collectives:
    """Propose settings of all-reduce that are worth a launch.

    Args:
        today: The server.
        hardware: Its GPUs.
        version: SGLang version, if known.
    """
    ipc = None if version in _NO_PCIE_IPC else _pcie_ipc(today, hardware)
    gpus = today.gpus
    if today.other_device is not None or hardware.is_amd:
        return Collectives(remark="no NVIDIA GPUs, so no settings of NCCL are proposed")
    if gpus == 1:
        return Collectives(remark="one GPU: nothing is reduced between GPUs, so NCCL has no part")
    if today.machines > 1:
        remark = (
            f"{today.machines} machines: the network between them decides; nothing is proposed here"
        )
        return Collectives(remark=remark)
    if hardware.link == "nvlink":
        return _nvlink(today)
    if gpus == 2 and _p2p_works(today):
        return _two_pcie(today, ipc)
    return _many_pcie(today, ipc)


def _nvlink(today: Today) -> Collectives:
    if not today.flags.get(OWN_OFF):
        remark = (
            "NVLink: SGLang's own kernel reduces what decoding needs, not NCCL (0.5.23), so NCCL's "
            "settings are not worth a launch"
        )
        return Collectives(remark=remark)
    return Collectives(
        flags=(_own_kernel(today, "NVLink: who carries the all-reduce of decoding."),)
    )


def _own_kernel(today: Today, why: str) -> Choice:
    if today.flags.get(OWN_OFF):
        why += (
            " It is NCCL today: if SGLang's kernel hung or gave wrong text here, hold "
            f"`{OWN_OFF}: true` under server.flags instead."
        )
    values = ((None, "SGLang's own kernel, where GPUs reach each other"), (True, "NCCL"))
    return Choice(OWN_OFF, values, why)


def _two_pcie(today: Today, ipc: Choice | None) -> Collectives:
    flag = _own_kernel(
        today,
        "2 PCIe GPUs: who carries the all-reduce of decoding (custom_all_reduce_utils.py, 0.5.23).",
    )
    protocol = _protocols(today)
    conditions: list[Condition] = [
        (
            {"flags": {OWN_OFF: None}},
            {"env": {protocol.name: None}},
            "Where SGLang's own kernel carries decoding, NCCL's protocol is not worth launches.",
        )
    ]
    env = [protocol]
    if ipc is not None:
        env.append(ipc)
        conditions.append(
            (
                {"env": {PCIE_IPC: "1"}},
                {"flags": {OWN_OFF: True}, "env": {protocol.name: None}},
                "FlashInfer's kernel stands in the place of both.",
            )
        )
    return Collectives((flag,), tuple(env), tuple(conditions))


def _many_pcie(today: Today, ipc: Choice | None) -> Collectives:
    why = "as SGLang decides itself beyond 2 PCIe GPUs (0.5.23)"
    if today.gpus == 2:
        why = "SGLang's own kernel would use P2P, which is off here"
    env = [_protocols(today)]
    if _p2p_works(today):
        about = "How far apart two GPUs may be and still copy to each other directly."
        env.append(_choice(today, "NCCL_P2P_LEVEL", _LEVELS, about))
    most = today.env.get("NCCL_MAX_NCHANNELS") or ""
    fits = tuple(
        (value, beside)
        for value, beside in _CHANNELS
        if value is None or not most.isdigit() or int(value) <= int(most)
    )
    about = (
        "Lower bound of the channels (CUDA blocks) of a collective: for prefill, and so the time "
        "to first token and long prompts. Decoding alone was not seen to gain: with short prompts "
        "leave it out, and the rest is searched better."
    )
    env.append(_choice(today, "NCCL_MIN_NCHANNELS", fits, about))
    conditions: tuple[Condition, ...] = ()
    if ipc is not None:
        unset = {choice.name: None for choice in env}
        about = "Where NCCL does not carry decoding, its variables are not worth launches."
        conditions = (({"env": {PCIE_IPC: "1"}}, {"env": unset}, about),)
        env.append(ipc)
    return Collectives(env=tuple(env), conditions=conditions, pinned={OWN_OFF: (True, why)})


def _p2p_works(today: Today) -> bool:
    return today.env.get("NCCL_P2P_DISABLE") in {None, "0"}


def _protocols(today: Today) -> Choice:
    about = (
        "The protocols that NCCL may choose from, for all-reduces. Figures: tok/s against the "
        "first, of a Kimi model on 8 RTX PRO 6000 at 32 requests (published, not measured here)."
    )
    return _choice(today, "NCCL_PROTO", _PROTOCOLS, about)


def _pcie_ipc(today: Today, hardware: Hardware) -> Choice | None:
    """FlashInfer's all-reduce kernel, for the GPUs and GPU counts that it supports."""
    if today.gpus not in PCIE_IPC_SIZES or today.flags.get("enable-deterministic-inference"):
        return None
    if not hardware.is_sm120 and PCIE_IPC not in today.env:
        return None
    values = ((None, "off"), ("1", "on: 48 tok/s where untuned NCCL had 35, on 8 GPUs of one host"))
    about = (
        "FlashInfer's all-reduce over PCIe in NCCL's place, for decoding (SGLang 0.5.23, opt-in; "
        "an older one, or FlashInfer without it, stays on NCCL)."
    )
    return _choice(today, PCIE_IPC, values, about)


def _choice(today: Today, name: str, values: tuple[tuple[Value, str], ...], why: str) -> Choice:
    """The values, with today's value among them."""
    own = today.env.get(name)
    known = {canonical_value(name, str(value)) for value, _ in values if value is not None}
    if own is None or canonical_value(name, own) in known:
        return Choice(name, values, why)
    return Choice(name, (*values, (own, "today's")), why)
