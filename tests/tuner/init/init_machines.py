"""A scripted `nvidia-smi` for the tests of `tuner init`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

UNDERLINED = "\x1b[4m"
PLAIN = "\x1b[0m"


def topology(count: int, kind: str, *, bridged: str = "") -> str:
    """Output of `nvidia-smi topo -m`; with `bridged`, pairs of neighbours have that link."""
    names = [f"GPU{n}" for n in range(count)]
    rows = [
        f"\t{UNDERLINED}" + "\t".join([*names, "NIC0", "CPU Affinity", "NUMA Affinity"]) + PLAIN
    ]
    for own in range(count):
        cells = [
            " X " if own == other else (bridged if bridged and own // 2 == other // 2 else kind)
            for other in range(count)
        ]
        rows.append("\t".join([names[own], *cells, "SYS", "0-31,64-95", "0"]))
    rows.append("\t".join(["NIC0", *itertools.repeat("SYS", count), " X ", "", ""]))
    rows += [
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes",
        "  NV#  = Connection traversing a bonded set of # NVLinks",
    ]
    return "\n".join(rows) + "\n"


def fake_nvidia_smi(folder: Path, name: str, count: int, topo: str) -> Path:
    """Write a program that answers like `nvidia-smi`, and return its folder for the PATH."""
    folder.mkdir(exist_ok=True)
    (folder / "topo.txt").write_text(topo)
    (folder / "names.txt").write_text(f"{name}\n" * count)
    script = folder / "nvidia-smi"
    script.write_text(
        '#!/bin/sh\nhere=$(dirname "$0")\n'
        'if [ "$1" = topo ]; then cat "$here/topo.txt"; else cat "$here/names.txt"; fi\n'
    )
    script.chmod(0o755)
    return folder
