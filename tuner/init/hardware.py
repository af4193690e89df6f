"""GPUs that a study is written for: count, name and interconnect."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runners.sglang.machine import Link, link_of, parse_topology
from tuner.init.questions import Asker, Question

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_GPUS = 64
"""Maximum GPUs of a machine; a larger number is a model name (`4090`)."""

_COUNT = re.compile(r"(\d+)(?:\s*[x×*]\s*|\s+|$)(.*)", re.IGNORECASE)  # noqa: RUF001 - people write it
_NVLINK_NAMES = re.compile(
    r"SXM|HBM3|\bH200(?! ?NVL)|\bH20\b|\bH800\b|\bGH200|\bGB[23]00|\bB[123]00\b|\bHGX|\bDGX",
    re.IGNORECASE,
)
_PCIE_NAMES = re.compile(
    r"PCIe|\bRTX\b|\b[345]0[6789]0\b|\bL4\b|\bL40S?\b|\bL20\b|\bA10G?\b|\bT4\b|\bA[456]000\b"
    r"|\b6000\b",
    re.IGNORECASE,
)
# A text without a number must look like a GPU.
_GPU_NAMES = re.compile(
    r"NVIDIA|GeForce|\b[RG]TX\b|Quadro|Tesla|TITAN|\bAMD\b|Radeon|Instinct|\bMI\d{3}|Gaudi|\bGPUs?\b"
    r"|\b(A|B|H|L|T|V|P|GH|GB|K)\d{1,4}[A-Z]{0,2}\b|\bHGX|\bDGX|Spark|Jetson",
    re.IGNORECASE,
)
_SM120_NAMES = re.compile(r"RTX PRO \d|\b50[6789]0\b|PRO 6000", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs of one machine.

    Attributes:
        gpus: Number of GPUs; 0 if unknown.
        name: Name of the GPUs; empty if unknown.
        link: Interconnect; `None` for one GPU, or if unknown.
        source: Source of the facts, for the user: `"nvidia-smi"`.
        links: Kind of link (`"NV18"`, `"SYS"`) by pair of GPU numbers.
        link_source: Source of the interconnect, if different from `source`.
    """

    gpus: int
    name: str = ""
    link: Link | None = None
    source: str = ""
    links: tuple[tuple[tuple[int, int], str], ...] = ()
    link_source: str = ""

    @property
    def is_amd(self) -> bool:
        """Whether the name is of AMD GPUs."""
        return bool(re.search(r"\bMI\d{3}|\bAMD\b|Radeon", self.name))

    @property
    def is_sm120(self) -> bool:
        """Whether the name is of workstation Blackwell GPUs (SM 120)."""
        return bool(_SM120_NAMES.search(self.name))

    def describe(self) -> str:
        """`"8x NVIDIA H100 80GB HBM3, NVLink (nvidia-smi)"`."""
        if not self.gpus:
            return self.name or "unknown"
        named = (
            f"{self.gpus}x {self.name}" if self.name else f"{self.gpus} GPU" + "s" * (self.gpus > 1)
        )
        link = {"nvlink": ", NVLink", "pcie": ", PCIe", None: ""}[self.link]
        said = link and link.removeprefix(", ").lower() in self.name.lower()
        if self.link_source and self.link_source != self.source:
            return f"{named}{_aside(self.source)}{link}{_aside(self.link_source)}"
        return f"{named}{'' if said else link}{_aside(self.source)}"

    def subset(self, used: Sequence[int]) -> Hardware:
        """Return the machine as seen by a server that uses only these GPUs."""
        kinds = [kind for pair, kind in self.links if set(pair) <= set(used)]
        link = link_of(kinds) if self.links else self.link
        return replace(self, gpus=len(used), link=link if len(used) > 1 else None)


def _aside(source: str) -> str:
    return f" ({source})" if source else ""


def parse_gpus(text: str) -> Hardware:
    """Read GPUs as people write them: `8x RTX PRO 6000`, `2`, `H100 PCIe`.

    The name decides the interconnect if products of this name have only one.

    Raises:
        ValueError: The text does not name GPUs.
    """
    words = text.strip()
    found = _COUNT.fullmatch(words)
    count, name = (int(found[1]), found[2].strip()) if found else (1, words)
    remedy = "write number and name, like 8x RTX PRO 6000, or only a number"
    if not 1 <= count <= MOST_GPUS:
        raise ValueError(f"one machine cannot have {count} GPUs; {remedy}")
    if not words or "/" in name or (found is None and not _GPU_NAMES.search(name)):
        raise ValueError(f"{words!r} does not name GPUs; {remedy}")
    link = link_of_name(name) if count > 1 else None
    return Hardware(count, name, link, "given")


def link_of_name(name: str) -> Link | None:
    """Return the interconnect of GPUs of this name; `None` if products differ."""
    if _PCIE_NAMES.search(name):
        return "pcie"
    return "nvlink" if _NVLINK_NAMES.search(name) else None


def detect() -> Hardware:
    """Ask `nvidia-smi` for the GPUs of this machine; 0 GPUs if there is no answer."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return Hardware(0)
    listed = _output(command, "--query-gpu=name", "--format=csv,noheader")
    names = [line.strip() for line in listed.splitlines() if line.strip()]
    if not names or any("failed" in name.lower() for name in names):
        return Hardware(0)
    name = " + ".join(dict.fromkeys(names))
    if len(names) == 1:
        return Hardware(1, name, None, "nvidia-smi")
    links = parse_topology(_output(command, "topo", "-m"))
    link = link_of(kind for _, kind in links) or link_of_name(name)
    return Hardware(len(names), name, link, "nvidia-smi", links)


def visible(devices: str | None, used: int) -> tuple[int, ...]:
    """Return the first GPU numbers of `CUDA_VISIBLE_DEVICES`, or of all GPUs."""
    words = [word.strip() for word in (devices or "").split(",")]
    numbers = [int(word) for word in words if word.isascii() and word.isdigit()]
    return tuple((numbers or list(range(used)))[:used])


def ask_gpus(asker: Asker, given: str | None) -> Hardware:
    """Ask for the GPUs if no command states their number; this machine is the default."""
    here = detect()
    default = f"{here.gpus}x {here.name}" if here.gpus else "1"
    answer = asker.ask(_question(default), given)
    # Only the detected machine has known links.
    return here if (answer.gpus, answer.name) == (here.gpus, here.name) else answer


def hardware_of(
    asker: Asker,
    given: Hardware | None,
    *,
    link: str | None,
    used: int,
    devices: str | None,
    link_matters: bool,
) -> tuple[Hardware, tuple[str, ...]]:
    """Find the GPUs of one server: given, detected, asked for, or assumed with a note.

    Args:
        asker: Asks for unknown facts.
        given: GPUs that the user named; `None` detects this machine.
        link: Value of `--interconnect`, if given.
        used: Number of GPUs that the server uses.
        devices: `CUDA_VISIBLE_DEVICES` of the command, if set.
        link_matters: Whether the interconnect decides anything.

    Returns:
        The hardware, and notes on assumptions.
    """
    notes: list[str] = []
    found = given if given is not None else detect()
    if given is None and found.gpus < used:
        if found.gpus:
            notes.append(
                f"this machine has {found.describe()}, but the server uses {used} GPUs; the study "
                "is assumed to be for another machine"
            )
        assumed = Hardware(used, source="assumed from the command")
        found = asker.ask(_question(str(used)), None) if asker.interactive else assumed
    if found.gpus < used:
        notes.append(f"the server uses {used} GPUs, but {found.gpus} were given")
    found = found.subset(visible(devices, used)) if found.links else replace(found, gpus=used)
    if used == 1:
        return replace(found, link=None), tuple(notes)
    known = found.link or (link_of_name(found.name) if found.name else None)
    if link is not None or (known is None and asker.interactive and link_matters):
        answer: Link = asker.ask(LINK, link)
        known = answer
        found = replace(found, link_source="given")
    elif known is None and link_matters:
        known = "pcie"
        found = replace(found, link_source="assumed")
        notes.append(
            "the interconnect of the GPUs is unknown and assumed to be PCIe, where NCCL settings "
            "matter; `--interconnect nvlink` saves their launches if the GPUs have NVLink"
        )
    return replace(found, link=known), tuple(notes)


def _question(default: str) -> Question[Hardware]:
    text = "Which GPUs does the server run on, like 8x RTX PRO 6000"
    return Question("--gpus", text, default, parse_gpus)


def _link(text: str) -> Link:
    word = text.strip().lower()
    if word not in {"pcie", "nvlink", "nvswitch"}:
        raise ValueError(f"{text!r} is not an interconnect; write pcie or nvlink")
    return "pcie" if word == "pcie" else "nvlink"


LINK: Question[Link] = Question(
    "--interconnect",
    "How are the GPUs connected, pcie or nvlink",
    "pcie",
    _link,
    "`nvidia-smi topo -m` shows the links: NV18 and the like are NVLink, PIX to SYS are PCIe.",
)


def _output(*command: str) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True, errors="replace"
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
