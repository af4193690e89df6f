"""The package's public surface, and what importing it costs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import runners.load


def test_public_names():
    assert sorted(runners.load.__all__) == [
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
    for name in runners.load.__all__:
        assert getattr(runners.load, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = runners.load.nothing


def test_importing_it_loads_no_http_client():
    code = (
        "import sys, runners.load;print(sorted({'httpx', 'orjson', 'pydantic'} & set(sys.modules)))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == "[]"


def test_functions_are_not_hidden_by_modules():
    # A submodule named like a lazy function would take its place once imported.
    import runners.load.running_server
    import runners.load.window.digest

    assert callable(runners.load.fingerprint)
    assert callable(runners.load.bench)
