"""What a prepared launcher may hold and do where it stands by a measurement."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from runners.process import prepared
from runners.process.prepared import NextLauncher

from .fake_sglang import command, gone, held, write_sglang

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["held"]

CUDA = """\
int cuDeviceGetCount(int *count) { *count = 2; return CODE; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *active = device < CONTEXTS; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)(long)(CONTEXTS == -1); return 0; }
"""
"""A driver of two GPUs that says of how many contexts it is asked to (-1: one that is its own)."""


def imports_cuda(folder: Path, uvm: Path, contexts: int, code: int = 0) -> str:
    """Source of imports that load a driver like this, and open its device."""
    library = folder / "libcuda.so.1"
    says = (f"-DCONTEXTS=({contexts})", f"-DCODE={code}")
    makes = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library))
    subprocess.run(("cc", *says, *makes, "-x", "c", "-"), input=CUDA, text=True, check=True)
    return f"import ctypes; cuda = ctypes.CDLL({str(library)!r}); file = open({str(uvm)!r})"


@pytest.fixture
def uvm(tmp_path, monkeypatch) -> Path:
    device = tmp_path / "nvidia-uvm"
    device.touch()
    monkeypatch.setattr(prepared, "CUDA_FILE", str(device))
    return device


@pytest.fixture
def park(tmp_path, held) -> Callable[[str], str | None]:
    """Parks a launcher whose imports do this; why it was given up, and then it is gone."""

    def parked(imports: str) -> str | None:
        launcher = NextLauncher(wanted=True)
        held(launcher)
        site = write_sglang(tmp_path / "site", imports=imports)
        launcher.prepare(command(site), tmp_path)
        pid = launcher.pid
        assert pid is not None
        launcher.park()
        if launcher.given_up is None:
            assert launcher.pid == pid
        else:
            assert launcher.pid is None
            assert gone(pid)
        return launcher.given_up

    return parked


@pytest.mark.skipif(shutil.which("cc") is None, reason="the driver is played by compiled code")
@pytest.mark.parametrize(
    ("driver", "why"),
    [
        ((0, 0), None),
        ((0, 3), None),  # loaded, not initialised
        ((1, 0), "its imports made 1 CUDA context(s), which hold GPU memory"),
        ((2, 0), "its imports made 2 CUDA context(s), which hold GPU memory"),
        ((-1, 0), "its imports made 1 CUDA context(s), which hold GPU memory"),
        ((0, 999), "its imports begin to use a GPU, and the driver does not say how"),
    ],
)
def test_cuda_may_be_initialised_but_have_no_context(park, uvm, monkeypatch, driver, why):
    imports = imports_cuda(uvm.parent, uvm, *driver)
    monkeypatch.setenv("PATH", str(uvm.parent))  # no nvidia-smi
    assert park(imports) == why


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("echo $LAUNCHER, 518", "its imports hold 518 MB of GPU memory"),
        ("echo $LAUNCHER, '[N/A]'", "its imports hold 1 MB of GPU memory"),
        ("echo 1, 70000", None),
        ("true", None),
        ("echo No devices were found; exit 6", None),
    ],
)
def test_what_the_drivers_tool_says_of_it(park, uvm, monkeypatch, says, why):
    tmp_path = uvm.parent
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nLAUNCHER=$(cat {tmp_path}/pid)\n{says}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    imports = (
        f"import os, pathlib; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()));"
        f"file = open({str(uvm)!r})"
    )
    assert park(imports) == why


def test_one_that_uses_rocm_does_not_stand_by_a_measurement(park, tmp_path, monkeypatch):
    device = tmp_path / "kfd"
    device.touch()
    monkeypatch.setattr(prepared, "ROCM_FILE", str(device))
    imports = f"file = open({str(device)!r})"
    assert park(imports) == "its imports begin to use a GPU (ROCm)"


def test_one_that_goes_on_working_does_not_stand_by_a_measurement(park):
    imports = (
        "import itertools, threading\n"
        "work = lambda: sum(0 for _ in itertools.count())\n"
        "threading.Thread(target=work, daemon=True).start()\n"
    )
    why = park(imports)
    assert why is not None
    assert why.startswith("its imports left work behind: ")
