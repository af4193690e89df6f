"""GPUs of a study: number, name, and link."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runners.sglang.machine import Link, link_of, parse_topology

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_GPUS = 64
"""Most GPUs of one machine that are believed; a larger number is a model name (`4090`)."""

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
# Without a number, the text must look like the name of a GPU.
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
        link: Link between the GPUs; `None` for one GPU, or if unknown.
        source: Origin of these facts, for the user: `"nvidia-smi"`.
        links: Kind of link by pair of GPU numbers (`"NV18"`, `"SYS"`).
        link_source: Origin of the link, if it differs from `source`.
    """

    gpus: int
    name: str = ""
    link: Link | None = None
    source: str = ""
    links: tuple[tuple[tuple[int, int], str], ...] = ()
    link_source: str = ""

    @property
    def is_amd(self) -> bool:
        """Whether the name is that of AMD GPUs."""
        return bool(re.search(r"\bMI\d{3}|\bAMD\b|Radeon", self.name))

    @property
    def is_sm120(self) -> bool:
        """Whether the name is that of Blackwell workstation GPUs."""
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
        """The machine as seen by a server that uses only these GPUs."""
        kinds = [kind for pair, kind in self.links if set(pair) <= set(used)]
        link = link_of(kinds) if self.links else self.link
        return replace(self, gpus=len(used), link=link if len(used) > 1 else None)


def _aside(source: str) -> str:
    return f" ({source})" if source else ""


class UnknownGpusError(ValueError):
    """The text names no GPUs. The message says how to write them."""


def parse_gpus(text: str) -> Hardware:
    """Parse a description of GPUs: `8x RTX PRO 6000`, `2`, `H100 PCIe`.

    The name decides the link if the product has only one kind.

    Raises:
        UnknownGpusError: The number of GPUs is not valid.
    """
    words = text.strip()
    found = _COUNT.fullmatch(words)
    count, name = (int(found[1]), found[2].strip()) if found else (1, words)
    if not 1 <= count <= MOST_GPUS:
        raise UnknownGpusError(
            f"{count} is no number of GPUs of one machine; write it like 8x RTX PRO 6000, or 8"
        )
    if not words or "/" in name or (found is None and not _GPU_NAMES.search(name)):
        what = f"{words!r} names no GPUs; w" if words else "W"
        raise UnknownGpusError(f"{what}rite how many, and which: 8x RTX PRO 6000, or 8")
    link = link_of_name(name) if count > 1 else None
    return Hardware(count, name, link, "as told")


def link_of_name(name: str) -> Link | None:
    """Link of GPUs with this name; `None` if the product has several kinds."""
    if _PCIE_NAMES.search(name):
        return "pcie"
    return "nvlink" if _NVLINK_NAMES.search(name) else None


def detect() -> Hardware:
    """GPUs of this machine by `nvidia-smi`; none if it does not answer."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return Hardware(0)
    listed = _ask(command, "--query-gpu=name", "--format=csv,noheader")
    names = [line.strip() for line in listed.splitlines() if line.strip()]
    if not names or any("failed" in name.lower() for name in names):
        return Hardware(0)
    name = names[0] if len(set(names)) == 1 else " + ".join(dict.fromkeys(names))
    if len(names) == 1:
        return Hardware(1, name, None, "nvidia-smi")
    links = parse_topology(_ask(command, "topo", "-m"))
    link = link_of(kind for _, kind in links) or link_of_name(name)
    return Hardware(len(names), name, link, "nvidia-smi", links)


def visible(devices: str | None, used: int) -> tuple[int, ...]:
    """Numbers of the GPUs that a server uses: the first of `CUDA_VISIBLE_DEVICES`, or of all."""
    words = [word.strip() for word in (devices or "").split(",")]
    numbers = [int(word) for word in words if word.isascii() and word.isdigit()]
    return tuple((numbers or list(itertools.islice(itertools.count(), used)))[:used])


def _ask(*command: str) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True, errors="replace"
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
