"""Hardware of a study: given, detected, asked for, or assumed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.init.hardware import Hardware, detect, link_of_name, parse_gpus, visible
from tuner.init.questions import Asker, Question

if TYPE_CHECKING:
    from runners.sglang.machine import Link

_LINKS: dict[str, Link] = {"pcie": "pcie", "nvlink": "nvlink", "nvswitch": "nvlink"}


def ask_gpus(asker: Asker, given: str | None) -> Hardware:
    """Ask for the machine if no command gives the number of GPUs; defaults to this machine."""
    here = detect()
    default = f"{here.gpus}x {here.name}" if here.gpus else "1"
    answer = asker.ask(_question(default), given)
    # Links are known only for detected GPUs.
    return here if (answer.gpus, answer.name) == (here.gpus, here.name) else answer


def hardware_of(
    asker: Asker,
    told: Hardware | None,
    *,
    link: str | None,
    used: int,
    devices: str | None,
    link_matters: bool = True,
) -> tuple[Hardware, tuple[str, ...]]:
    """Find the GPUs that one server uses.

    Args:
        asker: Asks for unknown facts.
        told: Description by the user; `None`: detect this machine.
        link: Value of `--interconnect`, if given.
        used: Number of GPUs that the server uses.
        devices: `CUDA_VISIBLE_DEVICES` of the command, if set.
        link_matters: Whether the link changes the study.

    Returns:
        The hardware, and notes on assumptions.
    """
    notes: list[str] = []
    found = told if told is not None else detect()
    if told is None and found.gpus < used:
        if found.gpus:
            notes.append(
                f"this machine has {found.describe()} and the server uses {used}: the study is "
                "taken to be for another one"
            )
        assumed = Hardware(used, source="assumed from the command")
        found = asker.ask(_question(str(used)), None) if asker.interactive else assumed
    if found.gpus < used:
        notes.append(f"the server uses {used} GPUs, and {found.gpus} were named")
    found = found.subset(visible(devices, used)) if found.links else replace(found, gpus=used)
    if used == 1:
        return replace(found, link=None), tuple(notes)
    known = found.link or (link_of_name(found.name) if found.name else None)
    if link is not None or (known is None and asker.interactive and link_matters):
        answer: Link = asker.ask(LINK, link)
        known = answer
        found = replace(found, link_source="as told")
    elif known is None and link_matters:
        known = "pcie"
        found = replace(found, link_source="assumed")
        notes.append(
            "how the GPUs are joined is not known: assumed PCIe, where NCCL's settings matter. "
            "With NVLink, `--interconnect nvlink` spares their launches"
        )
    return replace(found, link=known), tuple(notes)


def _question(default: str) -> Question[Hardware]:
    return Question(
        "--gpus", "Which GPUs does it run on, like 8x RTX PRO 6000", default, parse_gpus
    )


def _link(text: str) -> Link:
    found = _LINKS.get(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is neither; write pcie or nvlink")
    return found


LINK: Question[Link] = Question(
    "--interconnect",
    "How are the GPUs joined, pcie or nvlink",
    "pcie",
    _link,
    "`nvidia-smi topo -m` shows it: NV18 and the like are NVLink, PIX to SYS are PCIe.",
)
