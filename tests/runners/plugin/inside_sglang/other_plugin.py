"""Another plugin in its own folder, which runs code when SGLang registers it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEADER = """import sys
from multiprocessing import parent_process

def register():
    if "sglang.srt.managers.scheduler" in sys.modules and parent_process():
"""


def write_plugin(folder: Path, body: str) -> Path:
    """A plugin that runs `body` in schedulers."""
    info = folder / "other_plugin-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other_plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nother = other_plugin:register\n")
    code = textwrap.indent(textwrap.dedent(body), " " * 8)
    (folder / "other_plugin.py").write_text(HEADER + code)
    return folder
