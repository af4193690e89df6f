"""One new module under `tuner.planners` adds a planner to the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

MODULE = """
from tuner.planners.enumerated import ExhaustivePlanner
from tuner.planners.registry import register


@register("backwards", "all points in reverse order")
class BackwardsPlanner(ExhaustivePlanner):
    def _pick(self):
        return list(self._remaining)[-1]
"""

START = """
import sys
import tuner.planners
tuner.planners.__path__.append(sys.argv.pop(1))
from tuner.cli.app import run
sys.exit(run())
"""


def test_sweep_uses_a_planner_from_an_added_module(tmp_path, write_small):
    path = write_small(steps="[1, 2]", protos="[null]", requests=2, warmup=0)
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / "backwards.py").write_text(MODULE)

    def tuner(*arguments):
        command = [sys.executable, "-c", START, str(tmp_path / "added"), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    shown = tuner("sweep", "--help")
    assert "backwards: all points in reverse order" in " ".join(shown.stdout.split())
    options = ("sweep", "--study", path, "--no-hot-switch", "--json", "--planner")
    done = tuner(*options, "backwards")
    assert done.returncode == 0, done.stderr
    searched = [t for t in json.loads(done.stdout)["trials"] if t["purpose"] == "search"]
    assert [t["configuration"]["speculation"]["num_steps"] for t in searched] == [2, 1]
    refused = tuner(*options, "sideways")
    assert refused.returncode == 2
    assert "backwards" in refused.stderr
