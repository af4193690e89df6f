"""Where kernels that were compiled for one launch are kept for the next."""

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
"""Variables that move a cache."""
