"""Bytecode and weights are in caches before a server needs them."""

from __future__ import annotations

import compileall
import ctypes
import mmap
import os
import py_compile
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from runners.process.environment import CommandPrefix, LocalEnvironment
from runners.sglang import file_caches
from runners.sglang.file_caches import bytecode_folder, bytecode_variables, read_ahead, weight_files

from ..fake_sglang import write_sglang

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


HERE = LocalEnvironment(sys.executable)
WRITES_NONE = "1"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    return write_sglang(tmp_path / "site")


def variables(site: Path, writes: str | None) -> dict[str, str | None]:
    return {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": writes}


def compile_all(site: Path) -> None:
    assert compileall.compile_dir(site, quiet=1)


def test_installation_without_writable_bytecode_gets_a_folder(site):
    given = bytecode_variables(HERE, variables(site, WRITES_NONE))
    folder = bytecode_folder()
    assert given == {"PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": None}
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONPYCACHEPREFIX": str(folder)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    run = [sys.executable, "-c", "import sglang.srt.server_args"]
    subprocess.run(run, env=env, check=True, stdout=subprocess.DEVNULL)
    assert [path.stem.split(".")[0] for path in folder.rglob("server_args*.pyc")] == ["server_args"]
    assert not list(site.rglob("*.pyc")), "nothing of the installation is changed"


def test_existing_bytecode_is_used(site):
    compile_all(site)
    assert bytecode_variables(HERE, variables(site, WRITES_NONE)) == {}


def test_outdated_bytecode_is_ignored(site):
    compile_all(site)
    source = site / "sglang" / "srt" / "server_args.py"
    later = time.time() + 100
    os.utime(source, (later, later))  # as a copy that did not keep the times
    assert bytecode_variables(HERE, variables(site, WRITES_NONE)) != {}


def test_bytecode_with_a_hash_is_valid_at_any_time(site):
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    assert compileall.compile_dir(site, quiet=1, invalidation_mode=mode)
    source = site / "sglang" / "srt" / "server_args.py"
    os.utime(source, (1, 1))
    assert bytecode_variables(HERE, variables(site, WRITES_NONE)) == {}


def test_writable_installation_gets_no_folder(site):
    assert bytecode_variables(HERE, variables(site, None)) == {}


@pytest.mark.parametrize(
    "why",
    [
        {"PYTHONPYCACHEPREFIX": "/somewhere"},
        {"PYTHONPATH": ""},
    ],
    ids=["chosen by the study", "no SGLang"],
)
def test_no_folder_if_chosen_or_without_sglang(site, why):
    assert bytecode_variables(HERE, variables(site, WRITES_NONE) | why) == {}


def test_no_folder_behind_a_prefix_or_with_a_missing_interpreter(site):
    assert bytecode_variables(CommandPrefix(("env",), sys.executable), {}) == {}
    assert bytecode_variables(LocalEnvironment(str(site / "none")), {}) == {}


SIZE = 32 << 20
WAIT_S = 120


def cached_share(path: Path) -> float:
    """Share of a file's pages that are in the page cache (mincore)."""
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as pages:
        count = -(-size // mmap.PAGESIZE)
        found = (ctypes.c_ubyte * count)()
        at = ctypes.c_char.from_buffer(pages)
        done = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(at)), ctypes.c_size_t(size), found
        )
        del at
        assert done == 0, os.strerror(ctypes.get_errno())
        return sum(page & 1 for page in found) / count


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Weights that are on the disk and not in the page cache."""
    path = tmp_path / "model" / "model.safetensors"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_share(path) > 0.5:
        pytest.skip("this file system is the page cache (tmpfs)")
    return path


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_weights_are_read_in_the_background(weights):
    with read_ahead([weights.parent]):
        assert eventually(lambda: cached_share(weights) > 0.9)


def test_weights_that_do_not_fit_are_not_read(weights, monkeypatch):
    free = psutil.virtual_memory()._replace(available=SIZE)
    monkeypatch.setattr(file_caches.psutil, "virtual_memory", lambda: free)
    with read_ahead([weights.parent]) as thread:
        assert thread is None
    assert cached_share(weights) < 0.5


def test_cached_weights_are_not_read_again(weights, monkeypatch):
    whole = []
    read = os.preadv

    def reading(file: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        if len(buffers[0]) > 1:
            whole.append(offset)
        return read(file, buffers, offset, flags)

    monkeypatch.setattr(file_caches.os, "preadv", reading)
    with read_ahead([weights.parent]) as first:
        assert eventually(lambda: not first.is_alive())
    assert whole
    whole.clear()
    with read_ahead([weights.parent]) as second:
        assert eventually(lambda: not second.is_alive())
    assert not whole


def test_reading_stops_when_the_context_ends(weights, monkeypatch):
    asked = []

    def slowly(*call: object) -> None:
        asked.append(call)
        time.sleep(0.05)

    monkeypatch.setattr(file_caches, "_cached", lambda *_: False)
    monkeypatch.setattr(file_caches, "_CHUNK", 1 << 10)
    monkeypatch.setattr(file_caches.os, "preadv", slowly)
    with read_ahead([weights.parent]):
        assert eventually(lambda: len(asked) > 1)
    before = len(asked)
    assert before < SIZE >> 10
    time.sleep(0.3)
    assert len(asked) == before


def test_weight_files_are_distinct_and_sorted(tmp_path):
    for name in ("b.safetensors", "a.safetensors", "config.json", "x.gguf"):
        (tmp_path / name).touch()
    (tmp_path / "folder.bin").mkdir()
    (tmp_path / "link.bin").symlink_to(tmp_path / "a.safetensors")
    names = [
        path.name for path in weight_files([tmp_path, tmp_path, tmp_path / "none", "org/name"])
    ]
    assert names == ["a.safetensors", "b.safetensors", "x.gguf"]
