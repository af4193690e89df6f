"""Studies and replay tables for tests of the deciding half."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from search_spaces import parse_study

if TYPE_CHECKING:
    from collections.abc import Callable

    from search_spaces import Study

SMALL = """\
study: {name}
model: {{path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}}
server:
  flags: {{tp-size: 8, max-running-requests: 64}}
space:
  speculation:
    - algorithm: none
    - algorithm: EAGLE3
      num_steps: {steps}
      topk: {topk}
      num_draft_tokens: [4, 8]
  env: {{NCCL_PROTO: {protos}}}
workload:
  prompts: {{chat: 0.5, code: 0.5}}
  output_tokens: {output_tokens}
  points: {points}
  requests: {requests}
  warmup_requests: {warmup}
objective: {{maximize: output_tok_s, subject_to: {limits}}}
budget: {{launches: {launches}, hours: 6}}
runner: simulated
simulated: {{profile: {profile}, time_scale: {time_scale}}}
"""

DEFAULTS = {
    "name": "small",
    "steps": "[1, 2, 3]",
    "topk": "[1]",
    "protos": '[null, "LL,LL128,Simple"]',
    "output_tokens": 64,
    "points": "[{concurrency: 1}]",
    "requests": 4,
    "warmup": 1,
    "limits": "{}",
    "launches": 24,
    "profile": "kimi",
    "time_scale": 50,
}


def small_text(**changes: object) -> str:
    """A small study file on the simulated Kimi server."""
    return SMALL.format(**{**DEFAULTS, **changes})


@pytest.fixture
def small() -> Callable[..., Study]:
    """Makes small studies."""
    return lambda **changes: parse_study(small_text(**changes), "small.yaml")


class Tuner:
    """The command line as a user runs it: a process in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TUNER_")}
        self.env["PYTHONPATH"] = str(Path(__file__).parents[2])

    def write(self, **changes: object) -> str:
        path = self.folder / "small.yaml"
        path.write_text(small_text(**changes))
        return "./small.yaml"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tuner", *arguments],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=240)
        assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(process.args, code, out, err)


@pytest.fixture
def tuner(tmp_path: Path) -> Tuner:
    return Tuner(tmp_path)
