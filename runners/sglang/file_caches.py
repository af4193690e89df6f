"""Fill two caches of a launch: compiled Python modules, and weights in the page cache.

SGLang's launcher and scheduler import thousands of modules each. Without bytecode the imports take
more than twice as long (24 instead of 11 processor seconds each, SGLang 0.5.23 on a CPU). Packages
lack bytecode if they were installed without `__pycache__` (uv's default, or copied files with new
times) and Python cannot write it (PYTHONDONTWRITEBYTECODE, or a read-only folder).

A server imports for ten seconds or more before it reads weights, and the disk is idle. A thread
reads the weights meanwhile. `posix_fadvise` is not enough: Linux reads only one read-ahead window
of an announced range (`mm/readahead.c`, force_page_cache_readahead).
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from runners.base import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
    """Variables that keep the server's bytecode in a folder of the user's cache.

    Empty if bytecode exists, or if Python can write it.
    """
    if not environment.sees_processes or "PYTHONPYCACHEPREFIX" in variables:
        return {}
    try:
        found = environment.run_script(_SCRIPT, variables=variables)
    except EnvironmentUnusableError:
        return {}  # the launch reports the error
    if found["kept"] or found["writes"]:
        return {}
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


@contextmanager
def read_ahead(folders: Iterable[str | Path]) -> Iterator[threading.Thread | None]:
    """Read the weights of models into the page cache in a thread, until the context ends.

    Cached parts are skipped. Weights that do not fit into the available memory are not read, since
    they would evict each other.

    Args:
        folders: Folders of models on this machine.

    Yields:
        The thread; `None` if nothing is read.
    """
    files = weight_files(folders)
    if not files or not _fit(files):
        yield None
        return
    stop = threading.Event()
    thread = threading.Thread(target=_read, args=(files, stop), name="read-ahead", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()  # no measurement may be disturbed
        thread.join()


def _read(files: Iterable[Path], stop: threading.Event) -> None:
    buffer = bytearray(_CHUNK)
    for path in files:
        with suppress(OSError), path.open("rb", buffering=0) as file:
            number = file.fileno()
            for offset in range(0, os.fstat(number).st_size, _CHUNK):
                if stop.is_set():
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
    """Weight files in the folders that exist, in the likely order of loading."""
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
