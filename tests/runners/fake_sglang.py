"""Writes a small package named `sglang`, so that tests start a server without SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SERVES = """\
import sys
if __name__ == "__main__":
    import sglang.srt.entrypoints.http_server
    from runners.simulated_server.__main__ import main
    sys.exit(main())
"""
"""A `launch_server` that is the simulated server."""


def write_sglang(
    site: Path,
    launch_server: str = "",
) -> Path:
    """Writes the package into `site`, which is returned.

    Args:
        site: A folder for PYTHONPATH.
        launch_server: Source of that module.
    """
    sources = {
        "__init__.py": "import os\nos.environ.setdefault('FROM_IMPORT', '1')\n",
        "launch_server.py": f"import sglang.srt.server_args\n{launch_server}",
        "srt/__init__.py": "",
        "srt/server_args.py": "",
        "srt/utils/__init__.py": "",
        "srt/utils/common.py": "",
        "srt/entrypoints/__init__.py": "",
        "srt/entrypoints/http_server.py": "",
    }
    for name, source in sources.items():
        path = site / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return site
