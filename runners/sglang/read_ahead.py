"""Read weights into the page cache while the server imports.

A server imports for ten seconds or more before it reads weights, and the disk is idle. Cached parts
are skipped. Weights that do not fit into the available memory are not read, since they would evict
each other.

`posix_fadvise` is not enough: Linux reads only one read-ahead window of an announced range
(`mm/readahead.c`, force_page_cache_readahead).
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

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
