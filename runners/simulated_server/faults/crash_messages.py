"""The last lines of SGLang's tracebacks; numbers in them follow the flags.

Recorded, or read in the source of 0.5.23, torch and NCCL, or quoted from the threads that
`docs/simulated-server.md` names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from runners.simulated_server.launch.flag_state import ResolvedFlags

_MEM_FRACTION = 0.835
"""SGLang's own choice on an 80 GB GPU (0.5.23)."""

_BEFORE_GB, _AVAILABLE_GB = 94.16, 13.93
"""GPU memory before the weights and after them, draft included, as the start-up's log has it."""

_CUDA_OOM = (
    "CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 94.97 GiB of "
    "which 512.00 MiB is free. Including non-PyTorch memory, this process has 94.45 GiB memory in "
    "use. Of the allocated memory 92.10 GiB is allocated by PyTorch, and 1.02 GiB is reserved by "
    "PyTorch but unallocated."
)
_CUDA_HINT = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing "
    "CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
_ILLEGAL_ACCESS = "CUDA error: an illegal memory access was encountered"
_NCCL_INVALID = "NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)"
_NCCL_CUDA = "NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
_GRAPH_ADVICE = (
    "\nPossible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)\n"
    "3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. (Not recommended. Huge "
    "performance loss)\n"
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"
)

NCCL_CALLOC = "gpu-host:4711:4711 [0] NCCL WARN Failed to CUDA calloc 10485760 bytes"
NAN_LOGITS = "Detected errors during sampling! NaN in the logits."
GATHER_INDEX = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernelUtils.cu:16: vectorized_gather_kernel: block: "
    '[1,0,0], thread: [32,0,0] Assertion `ind >=0 && ind < ind_dim_size && "vectorized gather '
    'kernel index out of bounds"` failed.'
)
KILLED_IN_START = (
    "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 "
    "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
)
DRAFT_MISSING = "AttributeError: 'LlamaForCausalLM' object has no attribute 'hot_token_id'"


def _always(text: str) -> Callable[[ResolvedFlags], str]:
    return lambda _: text


nccl_invalid_usage = _always(f"RuntimeError: {_NCCL_INVALID}")
nccl_system_error = _always(
    "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
)
nccl_cuda_error = _always(f"RuntimeError: {_NCCL_CUDA}")
out_of_memory = _always(f"torch.OutOfMemoryError: {_CUDA_OOM}")
draft_mismatch = _always(
    "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLMEagle3: size mismatch for "
    "lm_head.weight: copying a param with shape torch.Size([32000, 4096]) from checkpoint, the "
    "shape in current model is torch.Size([128256, 4096])."
)
draft_key_missing = _always("KeyError: 'embed_tokens.weight'")
missing_fa3 = _always(
    "ImportError: Can not import FA3 in sgl_kernel. Please check your installation."
)
missing_deep_gemm = _always("ModuleNotFoundError: No module named 'deep_gemm'")
draft_shape = _always(
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (14x512 and 768x256)"
)
missing_mask = _always("AttributeError: 'NoneType' object has no attribute 'shape'")
replay_ssm = _always(
    "AssertionError: ReplaySSM fold-every-commit supports a linear draft chain only"
)
kernel_assertion = _always("RuntimeError: Assertion error (kernel_runtime.hpp:45): exit_code == 0")
illegal_access = _always(f"torch.AcceleratorError: {_ILLEGAL_ACCESS}{_CUDA_HINT}")
illegal_instruction = _always(
    f"torch.AcceleratorError: CUDA error: an illegal instruction was encountered{_CUDA_HINT}"
)
device_assert = _always(
    f"torch.AcceleratorError: CUDA error: device-side assert triggered{_CUDA_HINT}"
)


def _capture(what: str) -> Callable[[ResolvedFlags], str]:
    return _always(f"Exception: Capture cuda graph failed: {what}{_GRAPH_ADVICE}")


capture_out_of_memory = _capture(_CUDA_OOM)
capture_illegal_access = _capture(f"{_ILLEGAL_ACCESS}{_CUDA_HINT}")
capture_nccl = _capture(_NCCL_INVALID)
capture_nccl_cuda_error = _capture(_NCCL_CUDA)


def kv_pool_too_small(flags: ResolvedFlags) -> str:
    """Nothing is left of the static share once the weights are loaded."""
    share = flags.values.get("mem_fraction_static", _MEM_FRACTION)
    return (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
        f"value: mem_fraction_static={share}"
    )


def no_room_for_kv(flags: ResolvedFlags) -> str:
    """The weights alone are more than the static share."""
    share = flags.values.get("mem_fraction_static", _MEM_FRACTION)
    least = 1.0 - _AVAILABLE_GB / _BEFORE_GB
    return (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under "
        f"--mem-fraction-static={share}. Raise --mem-fraction-static above "
        f"{math.ceil(least * 1000) / 1000:.3f} (minimum viable = 1 - available/pre = {least:.4f}). "
        "If using speculative decoding, draft weights are now counted."
    )


def narrow_tree(flags: ResolvedFlags) -> str:
    """A path of the tree does not fit into its tokens."""
    path, width = flags.num_steps + 1, flags.num_draft_tokens
    return (
        f"RuntimeError: The expanded size of the tensor ({width}) must match the existing size "
        f"({path}) at non-singleton dimension 1.  Target sizes: [1, {width}].  Tensor sizes: "
        f"[{path}]"
    )


def _hub(_: ResolvedFlags) -> str:
    return (
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't "
        "find them in the cached files.\nCheck your internet connection or see how to run the "
        "library in offline mode at "
        "'https://huggingface.co/docs/transformers/installation#offline-mode'."
    )


def _remote_code(flags: ResolvedFlags) -> str:
    model = flags.values.get("model_path")
    return (
        f"ValueError: The repository {model} contains custom code which must be executed to "
        "correctly load the model. Please pass the argument `trust_remote_code=True` to allow "
        "custom code to be run."
    )


def _rpc_port(flags: ResolvedFlags) -> str:
    port = int(flags.values.get("port", 30000)) + 236
    return (
        f"ValueError: rpc_port at {port} is not available in 30 seconds. rpc_port is used by a "
        "process already. process.name()='sglang::scheduler_TP0'' process.cmdline()="
        "['sglang::scheduler_TP0'] process.status()='running' pid=4711"
    )


LAUNCHER: dict[str, tuple[str, Callable[[ResolvedFlags], str]]] = {
    "port_taken": ("ports", _rpc_port),
    "model_not_found": ("model_not_found", _hub),
    "draft_not_found": ("draft_not_found", _hub),
    "trust_remote_code": ("remote_code", _remote_code),
}
"""What the launcher itself dies of: the traceback's name, and its last line."""
