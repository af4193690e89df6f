"""What SGLang itself makes of configurations, asked before any of them is launched.

One process in the server's environment imports SGLang, parses, resolves and checks the arguments
of one launch after the other, and starts nothing. Where the environment has no GPU, one can be
pretended.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runners.sglang_judgement.answers import Answer, Answers, NotAskedError
    from runners.sglang_judgement.asking import ask, launch_arguments
    from runners.sglang_judgement.gpus import GPUS, PretendedGpu, gpu_named, gpu_to_pretend
    from runners.sglang_judgement.judgement import Judgement, judge

__all__ = [
    "GPUS",
    "Answer",
    "Answers",
    "Judgement",
    "NotAskedError",
    "PretendedGpu",
    "ask",
    "gpu_named",
    "gpu_to_pretend",
    "judge",
    "launch_arguments",
]

_HOMES = {
    "answers": ("Answer", "Answers", "NotAskedError"),
    "asking": ("ask", "launch_arguments"),
    "gpus": ("GPUS", "PretendedGpu", "gpu_named", "gpu_to_pretend"),
    "judgement": ("Judgement", "judge"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
