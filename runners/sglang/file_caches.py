"""Bytecode and weights in caches, so that servers start sooner."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from runners.base import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

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


_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})
_CHUNK = 4 << 20
"""Bytes per read; the thread can stop between two reads."""

_SHARE = 0.8
"""Share of the available memory that weights may use, since the server needs memory too."""


class ReadAhead:
    """Context manager that reads weight files in a thread."""

    def __init__(self, folders: Iterable[str | Path]) -> None:
        """Look for weights without reading them.

        Args:
            folders: Folders of models on this machine. Missing folders are skipped.
        """
        self.files = weight_files(folders)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self.files and _fit(self.files):
            self._thread = threading.Thread(target=self._read, name="read-ahead", daemon=True)
            self._thread.start()
        return self

    @property
    def reads(self) -> bool:
        """Whether the thread still reads."""
        return self._thread is not None and self._thread.is_alive()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the thread, so that no measurement is disturbed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _read(self) -> None:
        buffer = bytearray(_CHUNK)
        for path in self.files:
            with suppress(OSError), path.open("rb", buffering=0) as file:
                number = file.fileno()
                for offset in range(0, os.fstat(number).st_size, _CHUNK):
                    if self._stop.is_set():
                        return
                    if not (_cached(number, offset) and _cached(number, offset + _CHUNK // 2)):
                        os.preadv(number, [buffer], offset)


def _cached(file: int, offset: int) -> bool:
    """Whether a byte is in the page cache; also true past the end of the file."""
    try:
        os.preadv(file, [bytearray(1)], offset, os.RWF_NOWAIT)
    except OSError:  # not cached, or not supported by the file system
        return False
    return True


def weight_files(folders: Iterable[str | Path]) -> tuple[Path, ...]:
    """Weight files in these folders, in the likely order of loading."""
    found: dict[Path, None] = {}
    for folder in folders:
        with suppress(OSError):
            for path in sorted(Path(folder).expanduser().iterdir()):
                if path.suffix in _SUFFIXES and path.is_file():
                    found[path.resolve()] = None
    return tuple(found)


def _fit(files: Iterable[Path]) -> bool:
    try:
        size = sum(path.stat().st_size for path in files)
    except OSError:
        return False
    return size < _SHARE * psutil.virtual_memory().available
