"""Weights read into the page cache while the server still imports.

Before a server reads a byte of its weights it imports for ten seconds or more, with the disk idle.
They are read meanwhile, for the page cache to have them; what is there already is left alone. Not
where they would not fit into free memory: then they would only push each other out.

They are read, not announced: of a range that `posix_fadvise` says will be needed, Linux reads no
more than one read-ahead's worth (`mm/readahead.c`, force_page_cache_readahead).
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
"""Bytes read at a time, so that it can be told to stop in between."""

_SHARE = 0.8
"""Of the memory that is available: the server and its loading need some as well."""


class ReadAhead:
    """Reads files ahead in a thread, for as long as the context lasts."""

    def __init__(self, folders: Iterable[str | Path]) -> None:
        """Looks for weights; reads nothing yet.

        Args:
            folders: Of models, on this machine; what is none is passed over.
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
        """Whether it is still at it."""
        return self._thread is not None and self._thread.is_alive()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends it: nothing reads beside a measurement."""
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
    """Whether a byte can be had without the disk; past the end, too."""
    try:
        os.preadv(file, [bytearray(1)], offset, os.RWF_NOWAIT)
    except OSError:  # not now, or this file system does not tell
        return False
    return True


def weight_files(folders: Iterable[str | Path]) -> tuple[Path, ...]:
    """The files of weights in these folders, in the order in which they are likely loaded."""
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
