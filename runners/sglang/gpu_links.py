"""Links between the GPUs of one machine, from `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Link = Literal["nvlink", "pcie"]

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d+)")
_NVLINK = re.compile(r"NV\d+")
_PCIE = {"PIX", "PXB", "PHB", "NODE", "SYS"}


def parse_topology(text: str) -> tuple[tuple[tuple[int, int], str], ...]:
    """Read the kind of link between each pair of GPUs from `nvidia-smi topo -m`."""
    rows = [_ANSI.sub("", line).split() for line in text.splitlines()]
    header = next((row for row in rows if row[:1] == ["GPU0"] and "X" not in row[:2]), [])
    columns = [int(found[1]) for word in header if (found := _GPU.fullmatch(word))]
    out: list[tuple[tuple[int, int], str]] = []
    for row in rows:
        # A row starts with its name and one word per GPU. Network cards and CPUs follow.
        if row is header or not row or not (found := _GPU.fullmatch(row[0])):
            continue
        gpu = int(found[1])
        cells = zip(columns, row[1:], strict=False)
        out += [((gpu, other), kind) for other, kind in cells if gpu < other]
    return tuple(out)


def joined_by_nvlink(topology: str) -> bool:
    """Whether `nvidia-smi topo -m` shows NVLink between every two GPUs of a machine."""
    return link_of(kind for _, kind in parse_topology(topology)) == "nvlink"


def link_of(kinds: Iterable[str]) -> Link | None:
    """`nvlink` if every pair has NVLink, as SGLang's own kernel requires (0.5.23); else `pcie`."""
    known = [kind for kind in kinds if _NVLINK.fullmatch(kind) or kind in _PCIE]
    if not known:
        return None
    return "nvlink" if all(_NVLINK.fullmatch(kind) for kind in known) else "pcie"
