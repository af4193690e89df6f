"""Launch a stand-in of SGLang with the plugin: real processes, real entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import runners

if TYPE_CHECKING:
    from collections.abc import Sequence

STUBS = Path(__file__).parent / "stubs"
PLUGIN = Path(runners.__file__).parent / "plugin" / "inside_sglang"
MARK = "a-launch"

CHAIN = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 6,
}
"""Arguments of a server that can switch among up to 5 steps."""

HOT_SWITCH = {"TUNER_SWITCHABLE_STEPS": "1,2,5", "TUNER_LAUNCH": MARK}


@dataclass(frozen=True, slots=True)
class Launched:
    """How it ended.

    Attributes:
        code: The exit code.
        told: What the processes told, by name; empty where it did not come to that.
        log: Its standard error.
    """

    code: int
    told: dict[str, Any]
    log: str

    def lines(self) -> list[str]:
        """Lines of the plugin in the log."""
        return [line for line in self.log.splitlines() if line.startswith("tuner_sglang_plugin:")]


class Launch:
    """Launch stand-ins. A start takes a CPU second, so tests share servers if possible."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        script: str = "",
        *,
        version: str = "0.5.23",
        arguments: dict[str, Any] = CHAIN,
        env: dict[str, str] | None = None,
        paths: Sequence[Path] = (PLUGIN,),
    ) -> Launched:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TUNER_", "FAKE_", "PYTHON"))
        }
        environment = inherited | {
            "PYTHONPATH": os.pathsep.join(map(str, (*paths, STUBS))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "FAKE_SGLANG": version,
        }
        ended = subprocess.run(
            [sys.executable, "-m", "sglang.launch_server", json.dumps(arguments), script],
            env=environment | (env or {}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        told = json.loads(ended.stdout) if ended.stdout else {}
        return Launched(ended.returncode, told, ended.stderr)


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return Launch(tmp_path_factory.mktemp("launches"))
