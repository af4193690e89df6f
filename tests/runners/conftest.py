"""Studies and servers for tests of the runners."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from results.records import LaunchIntent
from search_spaces.configuration import Configuration, Setting, Speculation
from search_spaces.study_file.load import parse_study

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from search_spaces.study_file.study import Study

STUDY = """\
study: quick
model: {path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}
server:
  flags: {tp-size: 8, trust-remote-code: true, max-running-requests: 64}
  env: {NCCL_DEBUG: WARN, NCCL_ALGO: null}
space:
  speculation:
    - algorithm: none
    - {algorithm: EAGLE3, num_steps: [1, 2, 5], topk: [1, 2], num_draft_tokens: [4]}
  flags: {attention-backend: [null, triton], enable-mixed-chunk: [null, true]}
  env: {NCCL_PROTO: [null, LL128]}
workload: {prompts: {chat: 0.5, code: 0.5}, output_tokens: 32, requests: 4,
           points: [{concurrency: 1}, {concurrency: 2}]}
budget: {launches: 4}
runner: simulated
simulated: {profile: kimi, time_scale: 100.0}
"""


@pytest.fixture
def study() -> Study:
    return parse_study(STUDY, "quick")


def eagle3(steps: int, topk: int = 1, tokens: int | None = None, **env: str | None):
    """A configuration of the quick study."""
    return Configuration.of(
        Speculation("EAGLE3", steps, topk, tokens or steps + 1),
        draft_tp=8,
        flags={"attention-backend": None, "enable-mixed-chunk": None},
        env={"NCCL_PROTO": None} | env,
    )


@pytest.fixture
def intent(tmp_path: Path) -> Callable[..., LaunchIntent]:
    def make(configuration: Configuration, *settings: int | Setting) -> LaunchIntent:
        """A launch that is switched through chains of so many steps, or any settings."""
        mark = uuid.uuid4().hex
        log = str(tmp_path / f"{mark}.log")
        each = tuple(s if isinstance(s, Setting) else Setting(s) for s in settings)
        return LaunchIntent(configuration, each, mark, log)

    return make


@pytest.fixture
def with_sglang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets Python find that SGLang is installed, by a PYTHONPATH of its own."""

    def install(version: str) -> None:
        info = tmp_path / f"sglang-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return install
