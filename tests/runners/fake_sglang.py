"""A package that calls itself SGLang, for what is done with its launcher before it serves."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from runners.base import LaunchCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runners.process.prepared import NextLauncher

LONG_S = 120

TELLS = """\
import json, os, sys, threading
if __name__ == "__main__":
    import sglang.srt.entrypoints.http_server
    spec = sys.modules["__main__"].__spec__
    print(json.dumps({
        "argv": sys.argv[1:], "environ": dict(os.environ), "spec": spec.name,
        "path": sys.path, "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")), "stdin": os.readlink("/proc/self/fd/0"),
        "leads": os.getsid(0) == os.getpid(), "pid": os.getpid(),
    }), flush=True)
"""
"""A `launch_server` that tells as what it was started, and ends."""

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
    launch_server: str = TELLS,
    *,
    imports: str = "",
    top: str = "",
    plugin: bool = False,
) -> Path:
    """Writes the package into `site`, which is returned.

    Args:
        site: A folder for PYTHONPATH.
        launch_server: Source of that module.
        imports: What the HTTP server's module does when it is imported.
        top: What the arguments' module does.
        plugin: Whether a plugin of SGLang's is installed.
    """
    sources = {
        "__init__.py": "import os\nos.environ.setdefault('FROM_IMPORT', '1')\n",
        "launch_server.py": f"import sglang.srt.server_args\n{launch_server}",
        "srt/__init__.py": "",
        "srt/server_args.py": f"print('arguments', flush=True)\n{top}",
        "srt/utils/__init__.py": "",
        "srt/utils/common.py": "",
        "srt/entrypoints/__init__.py": "",
        "srt/entrypoints/http_server.py": f"print('http', flush=True)\n{imports}",
    }
    for name, source in sources.items():
        path = site / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    if plugin:
        info = site / "some_plugin-1.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(
            "Metadata-Version: 2.1\nName: some-plugin\nVersion: 1\n"
        )
        info.joinpath("entry_points.txt").write_text("[sglang.srt.plugins]\nsome = some:plugin\n")
    return site


@pytest.fixture
def held() -> Iterator[Callable[[NextLauncher], None]]:
    """Ends what a test prepared."""
    launchers: list[NextLauncher] = []
    yield launchers.append
    for launcher in launchers:
        launcher.discard()


def command(site: Path, *flags: str, **env: str) -> LaunchCommand:
    argv = (sys.executable, "-m", "sglang.launch_server", *flags)
    return LaunchCommand(argv, tuple(sorted(({"PYTHONPATH": str(site)} | env).items())))


def gone(pid: int) -> bool:
    deadline = time.monotonic() + LONG_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
