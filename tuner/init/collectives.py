"""Settings between the GPUs of a server that are worth the launches of a study, with reasons."""

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

    Choices = tuple[tuple[Value, str], ...]
    Condition = tuple[Mapping[str, object], Mapping[str, object], str]

_NO_PCIE_IPC = ("0.5.9", "0.5.17")
_PROTOCOLS = (
    (None, "not set: NCCL chooses, and leaves LL128 off on PCIe (2.30)"),
    ("LL,LL128,Simple", "all three: +12 %; LL128 is forced, see below"),
    ("LL128", "+13 %; forced on PCIe (NVIDIA warns of wrong data): compare the answers"),
    ("Simple", "+11 %"),
    ("LL", "+0 %; small all-reduces 1.5 times faster on a host with 2 EPYC CPUs"),
)
_LEVELS = (
    (None, "not set: NCCL decides by the CPU model"),
    ("PHB", "GPUs of the same CPU"),
    ("SYS", "all GPUs: +4 % at 1 request, +8 % at 64, on 4 RTX PRO 6000; hangs on some hosts"),
)
_CHANNELS = (
    (None, "not set: NCCL decides by the topology"),
    ("4", "half as many, in case 8 slow down the kernels of the model"),
    ("8", "+70 % bandwidth at 32 MB, the size of a prefill (8 GPUs, 2 EPYC CPUs)"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A flag or variable to vary.

    Attributes:
        name: Name of the flag or variable.
        values: Choices with the comment beside each; `None` is "not set".
        why: Comment above.
    """

    name: str
    values: Choices
    why: str


@dataclass(frozen=True, slots=True)
class Collectives:
    """Settings to vary and to fix.

    Attributes:
        flags: Flags to vary.
        env: Variables to vary.
        conditions: Conditions of the space: `when`, `then` and the comment above.
        pinned: Flags to fix, with the value and the reason.
        remark: Reason why nothing is varied.
    """

    flags: tuple[Choice, ...] = ()
    env: tuple[Choice, ...] = ()
    conditions: tuple[Condition, ...] = ()
    pinned: Mapping[str, tuple[Value, str]] = field(default_factory=dict)
    remark: str = ""


def propose(today: Today, hardware: Hardware, version: Version | None = None) -> Collectives:
    """Propose settings for the all-reduce of decoding on this hardware.

    Args:
        today: The server.
        hardware: GPUs of the server.
        version: SGLang version, if known.
    """
    if today.other_device is not None or hardware.is_amd:
        return Collectives(remark="No NVIDIA GPUs, so no NCCL settings are proposed.")
    if today.gpus == 1:
        return Collectives(remark="One GPU: there is no communication, so NCCL is not used.")
    if today.machines > 1:
        why = f"{today.machines} machines: the network decides, so nothing is proposed here."
        return Collectives(remark=why)
    if hardware.link == "nvlink":
        return _nvlink(today)
    ipc = None if version in _NO_PCIE_IPC else _pcie_ipc(today, hardware)
    if today.gpus == 2 and _p2p_works(today):
        return _two_pcie(today, ipc)
    return _many_pcie(today, ipc)


def _nvlink(today: Today) -> Collectives:
    if today.flags.get(OWN_OFF):
        return Collectives(flags=(_own_kernel(today, "NVLink"),))
    why = (
        "NVLink: SGLang's own kernel handles the all-reduce of decoding (0.5.23), so NCCL settings "
        "are not worth a launch."
    )
    return Collectives(remark=why)


def _own_kernel(today: Today, hardware: str) -> Choice:
    why = f"{hardware}: who handles the all-reduce of decoding (0.5.23)."
    if today.flags.get(OWN_OFF):
        why += (
            " Today NCCL does. If SGLang's kernel hung or gave wrong text here, set "
            f"`{OWN_OFF}: true` under server.flags instead."
        )
    return Choice(OWN_OFF, ((None, "SGLang's own kernel, if GPUs have P2P"), (True, "NCCL")), why)


def _two_pcie(today: Today, ipc: Choice | None) -> Collectives:
    protocol = _protocols(today)
    conditions: list[Condition] = [
        (
            {"flags": {OWN_OFF: None}},
            {"env": {protocol.name: None}},
            "With SGLang's own kernel, the NCCL protocol is not worth launches.",
        )
    ]
    env = [protocol]
    if ipc is not None:
        env.append(ipc)
        why = "FlashInfer's kernel replaces both."
        then = {"flags": {OWN_OFF: True}, "env": {protocol.name: None}}
        conditions.append(({"env": {PCIE_IPC: "1"}}, then, why))
    return Collectives((_own_kernel(today, "2 PCIe GPUs"),), tuple(env), tuple(conditions))


def _many_pcie(today: Today, ipc: Choice | None) -> Collectives:
    why = "SGLang's own decision for more than 2 PCIe GPUs (0.5.23)"
    if today.gpus == 2:
        why = "SGLang's own kernel needs P2P, which is off here"
    env = [_protocols(today)]
    if _p2p_works(today):
        about = "Maximum distance of two GPUs that copy to each other directly."
        env.append(_choice(today, "NCCL_P2P_LEVEL", _LEVELS, about))
    most = today.env.get("NCCL_MAX_NCHANNELS") or ""
    fits = tuple(
        (value, beside)
        for value, beside in _CHANNELS
        if value is None or not most.isdigit() or int(value) <= int(most)
    )
    about = (
        "Minimum number of channels (CUDA blocks) of a collective. Prefill gains, and so do the "
        "time to first token and long prompts. No gain was measured for decoding alone: remove "
        "the variable if prompts are short, and the search of the other settings is faster."
    )
    env.append(_choice(today, "NCCL_MIN_NCHANNELS", fits, about))
    conditions: tuple[Condition, ...] = ()
    if ipc is not None:
        unset = {choice.name: None for choice in env}
        about = "With FlashInfer's kernel, NCCL variables are not worth launches."
        conditions = (({"env": {PCIE_IPC: "1"}}, {"env": unset}, about),)
        env.append(ipc)
    return Collectives(env=tuple(env), conditions=conditions, pinned={OWN_OFF: (True, why)})


def _p2p_works(today: Today) -> bool:
    return today.env.get("NCCL_P2P_DISABLE") in {None, "0"}


def _protocols(today: Today) -> Choice:
    about = (
        "Protocols that NCCL may use for all-reduces. Gains in tok/s are against the first one, "
        "for a Kimi model on 8 RTX PRO 6000 with 32 requests (published, not measured here)."
    )
    return _choice(today, "NCCL_PROTO", _PROTOCOLS, about)


def _pcie_ipc(today: Today, hardware: Hardware) -> Choice | None:
    """FlashInfer's kernel, on the GPUs and GPU counts that the kernel supports."""
    if today.gpus not in PCIE_IPC_SIZES or today.flags.get("enable-deterministic-inference"):
        return None
    if not hardware.is_sm120 and PCIE_IPC not in today.env:
        return None
    values = ((None, "off"), ("1", "on: 48 tok/s instead of 35 with untuned NCCL, on 8 GPUs"))
    about = (
        "FlashInfer's all-reduce over PCIe instead of NCCL, for decoding (SGLang 0.5.23, opt-in). "
        "An older SGLang, or FlashInfer without the kernel, stays on NCCL."
    )
    return _choice(today, PCIE_IPC, values, about)


def _choice(today: Today, name: str, values: Choices, why: str) -> Choice:
    """Choices, with today's value among them."""
    own = today.env.get(name)
    known = {canonical_value(name, str(value)) for value, _ in values if value is not None}
    if own is None or canonical_value(name, own) in known:
        return Choice(name, values, why)
    return Choice(name, (*values, (own, "today's")), why)
