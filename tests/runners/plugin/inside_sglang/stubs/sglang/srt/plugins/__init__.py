"""Loads plugins as SGLang does: an `Exception` of theirs is logged, and that is all."""

import importlib.metadata
import sys

from sglang.srt.plugins.hook_registry import HookRegistry


def load_plugins():
    for entry in importlib.metadata.entry_points(group="sglang.srt.plugins"):
        try:
            entry.load()()
        except Exception as error:
            print(f"Failed to execute general plugin: {error!r}", file=sys.stderr)
    HookRegistry.apply_hooks()
