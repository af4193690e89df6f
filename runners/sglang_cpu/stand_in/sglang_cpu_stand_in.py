"""Lets the stock sglang 0.5.23 run on a CPU-only torch; imported by every start of the interpreter.

A `.pth` file in the environment's site-packages imports it (not `sitecustomize`, which a
distribution may own). It must cost nothing where sglang is not used, so it only installs an
import hook: torch and sglang are touched when they are imported by somebody else.
"""

import importlib.abc
import importlib.machinery
import sys

_keep = []  # torch.library handles undo their definitions when they are collected


def _define_torchvision_operators():
    """Names that two `register_fake` calls of torchvision need.

    torchvision from the registry is a CUDA build: beside a CPU torch its `_C.so` cannot load.
    """
    import torch

    if torch.version.cuda:  # a matching CUDA pair loads its own _C.so
        return
    library = torch.library.Library("torchvision", "DEF")
    for signature in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    ):
        try:
            library.define(signature)
        except RuntimeError:
            pass
    _keep.append(library)


def _keep_attention_backend(module):
    """Keeps `intel_amx` although the CPU has no AMX.

    Its three operators are plain torch in our `sgl_kernel`, and it is the only CPU backend with a
    multi-step draft backend.
    """
    old = module._attention_backend_platform_fallbacks

    def unchanged(view):
        return {}

    unchanged.__name__ = old.__name__
    module.POST_PROCESS_PASSES[:] = [
        unchanged if step is old else step for step in module.POST_PROCESS_PASSES
    ]
    module._attention_backend_platform_fallbacks = unchanged


def _avoid_triton(module):
    """With page_size > 1, get_last_loc() picks the Triton kernel for any backend but two."""
    module.get_last_loc_triton = module.get_last_loc_torch


_BEFORE = {"torchvision": _define_torchvision_operators}
_AFTER = {
    "sglang.srt.arg_groups.overrides": _keep_attention_backend,
    "sglang.srt.mem_cache.allocation": _avoid_triton,
}


class _Loader(importlib.abc.Loader):
    def __init__(self, inner, name):
        self._inner, self._name = inner, name

    def create_module(self, spec):
        return self._inner.create_module(spec)

    def exec_module(self, module):
        self._inner.exec_module(module)
        _AFTER[self._name](module)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in _BEFORE:
            _BEFORE.pop(name)()
        if name in _AFTER and name not in sys.modules:
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec and spec.loader:
                spec.loader = _Loader(spec.loader, name)
                return spec
        return None


sys.meta_path.insert(0, _Finder())
