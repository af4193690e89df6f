"""Compiled modules where a server's installation has none and may write none.

SGLang's launcher and its scheduler import some thousands of modules each. Compiled at every import
they take more than twice as long (SGLang 0.5.23 on a CPU: 24 processor seconds where 11 do, in
each of the two). That is so in images whose packages were installed without `__pycache__` (uv does
not compile; copied files may be older than their bytecode says) and whose Python may not write
any (PYTHONDONTWRITEBYTECODE, or a folder that is not ours). Then it is kept in a folder beside.
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

# Runs in the server's interpreter, so standard library only. Three modules stand for their
# packages: a file of each that every start imports.
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
    """Variables by which a server's modules are compiled once, not at every launch.

    Args:
        environment: Where the server runs.
        variables: Those that it is given.

    Returns:
        Nothing where bytecode is there, or is written at the first launch.
    """
    if not environment.sees_processes or "PYTHONPYCACHEPREFIX" in variables:
        return {}
    try:
        done = environment.run(["-c", _SCRIPT], variables=variables)
        found = json.loads(done.stdout.strip().splitlines()[-1])
        if found["kept"] or found["writes"]:
            return {}
    except (EnvironmentUnusableError, IndexError, ValueError, KeyError, TypeError):
        return {}  # what is wrong with it, the start says
    return {"PYTHONPYCACHEPREFIX": str(bytecode_folder()), "PYTHONDONTWRITEBYTECODE": None}


def bytecode_folder() -> Path:
    """Where servers' bytecode is kept; Python makes it, and tells versions apart."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "sglang-tuner" / "bytecode"
