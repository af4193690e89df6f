"""The real SGLang on a CPU; without it these tests are skipped, with the reason."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from results.records import LaunchIntent
from runners.sglang_cpu import DEFAULT_DIR, CpuServer
from search_spaces.study import Study, load_study

if TYPE_CHECKING:
    from collections.abc import Callable

    from search_spaces.configuration import Configuration

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cpu_server() -> CpuServer:
    """The installed SGLang; `TUNER_SGLANG_CPU` names its folder, else `.sglang-cpu`."""
    server = CpuServer(Path(os.environ.get("TUNER_SGLANG_CPU") or ROOT / DEFAULT_DIR).absolute())
    if not server.python.exists():
        pytest.skip(f"no SGLang in {server.root}: make sglang-cpu installs it")
    return server


@pytest.fixture
def tiny(cpu_server: CpuServer) -> Study:
    """The shipped study `tiny`, at this server, with a smaller load."""
    study = load_study("tiny")
    models = cpu_server.models
    return study.model_copy(
        update={
            "model": study.model.model_copy(
                update={"path": str(models / "tiny"), "draft": str(models / "noisy")}
            ),
            "server": study.server.model_copy(update={"python": str(cpu_server.python)}),
            "workload": study.workload.model_copy(update={"output_tokens": 32, "requests": 6}),
        }
    )


@pytest.fixture
def intent(tmp_path: Path) -> Callable[[Configuration], LaunchIntent]:
    def make(configuration: Configuration) -> LaunchIntent:
        mark = uuid.uuid4().hex
        return LaunchIntent(configuration, (), mark, str(tmp_path / f"{mark}.log"))

    return make
