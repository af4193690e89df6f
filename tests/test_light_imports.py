"""Importing what `tuner --help` and study files need stays cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = "{'httpx', 'pydantic', 'yaml', 'sqlalchemy', 'optuna', 'alembic', 'orjson', 'psutil'}"


@pytest.mark.parametrize(
    "module",
    [
        "results.records",
        "results.studies",
        "results.errors",
        "runners.base",
        "runners.load",
        "search_spaces.configuration",
        "search_spaces.workload",
        "tuner.cli.app",
    ],
)
def test_import_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
