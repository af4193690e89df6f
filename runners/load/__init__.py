"""The load source and the closed-loop load generator.

    generator = LoadGenerator(url, workload, BuiltInPrompts(workload.prompts), seed=0)
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
    PromptSource,
)

if TYPE_CHECKING:
    from runners.load.digest import fingerprint
    from runners.load.generator import LoadGenerator
    from runners.load.rendering import ChatTemplateRenderer, IdentityRenderer, Renderer
    from runners.load.running_server import bench

_LAZY = {
    "ChatTemplateRenderer": "rendering",
    "IdentityRenderer": "rendering",
    "LoadGenerator": "generator",
    "Renderer": "rendering",
    "bench": "running_server",
    "fingerprint": "digest",
}

__all__ = [
    "BUILT_IN_SETS",
    "BuiltInPrompts",
    "ChatTemplateRenderer",
    "IdentityRenderer",
    "LoadGenerator",
    "NotEnoughPromptsError",
    "Prompt",
    "PromptSource",
    "Renderer",
    "bench",
    "fingerprint",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if (module := _LAZY.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
