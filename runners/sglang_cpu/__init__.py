"""Install the real SGLang on a CPU, with replacement kernels and tiny models, for tests."""

from runners.sglang_cpu.install import DEFAULT_DIR, CpuServer, install

__all__ = ["DEFAULT_DIR", "CpuServer", "install"]
