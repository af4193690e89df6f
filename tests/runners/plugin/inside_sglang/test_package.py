"""The plugin's files must load in SGLang's interpreter."""

from __future__ import annotations

import ast
import importlib.metadata
import sys

import pytest

from runners.plugin.inside_sglang.tuner_sglang_plugin.status import VERSION

from .conftest import PLUGIN

SOURCES = sorted((PLUGIN / "tuner_sglang_plugin").glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_plugin_is_standard_library_only_and_python_3_10(path):
    """Functions that need `torch` import the server's `torch`."""
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(node.module.split(".")[0])
    assert imported - sys.stdlib_module_names <= {"torch"}
    at_the_top = {
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    }
    assert "torch" not in at_the_top


def test_dist_info_has_sglangs_entry_point():
    (found,) = importlib.metadata.distributions(path=[str(PLUGIN)])
    assert (found.name, found.version) == ("tuner_sglang_plugin", VERSION)
    (entry,) = found.entry_points
    assert (entry.group, entry.name, entry.value) == (
        "sglang.srt.plugins",
        "tuner_sglang_plugin",
        "tuner_sglang_plugin:register",
    )
