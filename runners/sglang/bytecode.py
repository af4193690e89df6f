"""Bytecode cache for installations that have no bytecode and cannot write any.

SGLang's launcher and scheduler import thousands of modules each. Without bytecode the imports take
more than twice as long (24 instead of 11 processor seconds each, SGLang 0.5.23 on a CPU). Packages
lack bytecode if they were installed without `__pycache__` (uv's default, or copied files with new
times) and Python cannot write it (PYTHONDONTWRITEBYTECODE, or a read-only folder). Their bytecode
goes to a folder in the user's cache.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from runners.base import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.process.environment import ServerEnvironment

# Runs in the server's interpreter, so standard library only. Checks one module of each of three
# packages that every start imports.
_SCRIPT = r"""
import importlib.util, json, os, sys
found = {"kept": True, "writes": not sys.dont_write_bytecode}
for package, module in (("sglang", "srt/server_args.py"), ("torch", "functional.py"),
                        ("transformers", "configuration_utils.py")):
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        continue
    source = os.path.join(os.path.dirname(spec.origin), *module.split("/"))
    if not os.path.exists(source):
        continue
    cached = importlib.util.cache_from_source(source)
    try:
        with open(cached, "rb") as file:
            head = file.read(16)
        by_hash = int.from_bytes(head[4:8], "little") & 1
        made_for = int.from_bytes(head[8:12], "little")
        current = made_for == int(os.stat(source).st_mtime) & 0xFFFFFFFF
        kept = head[:4] == importlib.util.MAGIC_NUMBER and (by_hash or current)
    except OSError:
        kept = False
    if not kept:
        found["kept"] = False
        folder = os.path.dirname(cached)
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        found["writes"] = found["writes"] and os.access(folder, os.W_OK)
print(json.dumps(found))
"""


def bytecode_variables(
    environment: ServerEnvironment, variables: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Variables that make a server compile its modules once, not at every launch.

    Args:
        environment: Environment of the server.
        variables: Other variables of the server.

    Returns:
        Empty if bytecode exists, or if Python can write it.
    """
    if not environment.sees_processes or "PYTHONPYCACHEPREFIX" in variables:
        return {}
    try:
        done = environment.run(["-c", _SCRIPT], variables=variables)
        found = json.loads(done.stdout.strip().splitlines()[-1])
        if found["kept"] or found["writes"]:
            return {}
    except (EnvironmentUnusableError, IndexError, ValueError, KeyError, TypeError):
        return {}  # the launch reports the error
    return {"PYTHONPYCACHEPREFIX": str(bytecode_folder()), "PYTHONDONTWRITEBYTECODE": None}


def bytecode_folder() -> Path:
    """Folder of the servers' bytecode. Python creates it and separates versions."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "sglang-tuner" / "bytecode"
