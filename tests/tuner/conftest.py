"""Studies and replay tables for tests of the deciding half."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from results.store import Store
from search_spaces.study_file.load import parse_study
from tuner.cli.app import run

from ..quick_profile import write_quick_profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from search_spaces.study_file.study import Study

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


@pytest.fixture
def write_small(tuner) -> Callable[..., str]:
    """Writes a small study into the tuner's folder; returns its path as a user would give it.

    Its servers start at once. With `profile="kimi"` they take as long as the machine's.
    """

    def write(**changes: object) -> str:
        if "profile" not in changes:
            changes["profile"] = write_quick_profile(tuner.folder)
        (tuner.folder / "small.yaml").write_text(small_text(**changes))
        return "./small.yaml"

    return write


@pytest.fixture
def call(tuner, monkeypatch, capsys):
    """Runs a command line in this process, which spares the time to start one."""
    monkeypatch.chdir(tuner.folder)

    def run_here(*arguments: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        returned = run(list(arguments))
        out, err = capsys.readouterr()
        assert returned == code, f"exit {returned}\n{out}\n{err}"
        return out, err

    return run_here


@pytest.fixture
def store():
    with Store.open("sqlite://") as opened:
        yield opened
