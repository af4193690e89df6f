"""pytest finds the fixtures of every folder, in whatever order files are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = (
    "tests/tuner/planners/test_planners.py",
    "tests/test_light_imports.py",
    "tests/tuner/loop/test_two_gpus.py",
)


@pytest.mark.slow
def test_fixtures_of_a_folder_are_found_after_a_file_of_its_parent():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--setup-plan", "-q", "-p", "no:cacheprovider", *FILES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
