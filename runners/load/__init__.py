"""Prompt sources, and the load generator for closed and open loops.

    generator = LoadGenerator(url, workload, prompt_source(workload.prompts), seed=0)
    measurement = generator.measure(OperatingPoint(concurrency=1), speculation=resolved)

What speaks HTTP is imported on first use, so that importing this package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from runners.load.prompts import (
    BUILT_IN_SETS,
    BuiltInPrompts,
    NotEnoughPromptsError,
    Prompt,
    PromptFileError,
    PromptSource,
)

if TYPE_CHECKING:
    from runners.load.digest import fingerprint
    from runners.load.generator import LoadGenerator
    from runners.load.rendering import ChatTemplateRenderer, IdentityRenderer, Renderer
    from runners.load.running_server import bench, bench_windows
    from runners.load.server_python import ServerPython
    from runners.load.sources import prompt_source

_LAZY = {
    "ChatTemplateRenderer": "rendering",
    "IdentityRenderer": "rendering",
    "LoadGenerator": "generator",
    "Renderer": "rendering",
    "ServerPython": "server_python",
    "bench": "running_server",
    "bench_windows": "running_server",
    "fingerprint": "digest",
    "prompt_source": "sources",
}

__all__ = [
    "BUILT_IN_SETS",
    "BuiltInPrompts",
    "ChatTemplateRenderer",
    "IdentityRenderer",
    "LoadGenerator",
    "NotEnoughPromptsError",
    "Prompt",
    "PromptFileError",
    "PromptSource",
    "Renderer",
    "ServerPython",
    "bench",
    "bench_windows",
    "fingerprint",
    "prompt_source",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if (module := _LAZY.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
