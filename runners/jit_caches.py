"""Where kernels that were compiled for one launch are kept for the next.

The tuner changes nothing of it: a server has the home folder and the variables of whoever runs
the tuner, so what one launch compiled the next one finds. Where each launch has a container of its
own (`docker run --rm`), they must lie on a volume.
"""

from __future__ import annotations

from typing import Final

CACHE_VARIABLES: Final = (
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "TVM_FFI_CACHE_DIR",
    "SGLANG_DG_CACHE_DIR",
    "SGLANG_CACHE_DIR",
    "TILELANG_CACHE_DIR",
    "CUDA_CACHE_PATH",
)
"""Variables that move a cache (triton 3.6 `knobs.py`, torch 2.11 `cache_dir_utils.py`, flashinfer
0.6 `jit/env.py`, tvm-ffi 0.1.11 `cpp/extension.py`, SGLang 0.5.17 and 0.5.23 `environ.py`)."""

# Runs in the server's interpreter, so standard library only; `import sglang` would take seconds.
# SGLang moves other packages' caches under its own where `environ.py` has that function (0.5.23;
# not in 0.5.17).
CACHES_SCRIPT: Final = r"""
import getpass, importlib.util, os, tempfile

def caches():
    def under(*parts):
        return os.path.join(os.path.expanduser("~"), *parts)

    moved, given = None, os.environ.get
    own = os.path.expanduser(given("SGLANG_CACHE_DIR") or under(".cache", "sglang"))
    try:
        folder = os.path.dirname(importlib.util.find_spec("sglang").origin or "")
        with open(os.path.join(folder, "srt", "environ.py"), encoding="utf-8") as source:
            moved = own if "def third_party_cache_defaults" in source.read() else None
    except Exception:
        pass
    try:
        user = getpass.getuser()
    except Exception:
        user = "uid_%d" % os.getuid()
    base = given("FLASHINFER_WORKSPACE_BASE") or moved or under()
    return {
        "sglang": own,
        "triton": given("TRITON_CACHE_DIR") or (
            os.path.join(moved, "triton") if moved
            else os.path.join(given("TRITON_HOME") or under(), ".triton", "cache")),
        "inductor": given("TORCHINDUCTOR_CACHE_DIR") or (
            os.path.join(moved, "inductor") if moved
            else os.path.join(tempfile.gettempdir(), "torchinductor_" + user)),
        "flashinfer": os.path.join(base, ".cache", "flashinfer"),
        "tvm_ffi": given("TVM_FFI_CACHE_DIR") or under(".cache", "tvm-ffi"),
        "deep_gemm": given("SGLANG_DG_CACHE_DIR") or (
            os.path.join(moved, "deep_gemm") if moved else under(".cache", "deep_gemm")),
        "cuda": given("CUDA_CACHE_PATH") or (
            os.path.join(moved, "nv") if moved else under(".nv", "ComputeCache")),
    }
"""
"""Defines `caches()`: the folder of each cache, as the server's variables have it."""
