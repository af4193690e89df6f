"""The real SGLang on a CPU; its tests are skipped if it is not installed."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from results.records import LaunchIntent
from runners.sglang_cpu import DEFAULT_DIR, CpuServer

from .servers import KINDS, Live, by_kind, kind_of, study_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study

    from .servers import LiveServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cpu_server() -> CpuServer:
    """The installed SGLang, in the folder `TUNER_SGLANG_CPU` (default: `.sglang-cpu`)."""
    server = CpuServer(Path(os.environ.get("TUNER_SGLANG_CPU") or ROOT / DEFAULT_DIR).resolve())
    if not server.python.exists():
        pytest.skip(f"no SGLang in {server.root}: make sglang-cpu installs it")
    return server


@pytest.fixture
def tiny(cpu_server: CpuServer) -> Study:
    """The shipped study `tiny` for this server, with a smaller load."""
    return study_of(cpu_server, "standalone")


@pytest.fixture(scope="session")
def live(cpu_server: CpuServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Live servers by kind; see `servers.py`."""
    servers = Live(cpu_server, tmp_path_factory.mktemp("live"))
    yield servers
    servers.discard()


@pytest.fixture
def server(live: Live, request: pytest.FixtureRequest) -> LiveServer:
    """The live server of the test's marker `kind`."""
    kind = kind_of(request.node)
    assert kind is not None, "mark the test with its kind of server"
    return live(kind)


# First: `--dist loadgroup` reads the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of one kind, or of one file without kinds, in one worker."""
    for item in items:
        if item.get_closest_marker("sglang") is not None:
            kind = kind_of(item)
            group = str(item.path.relative_to(ROOT)) if kind is None else KINDS[kind].beside or kind
            item.add_marker(pytest.mark.xdist_group(group))
    items[:] = by_kind(items)


@pytest.fixture
def intent(tmp_path: Path) -> Callable[[Configuration], LaunchIntent]:
    def make(configuration: Configuration) -> LaunchIntent:
        mark = uuid.uuid4().hex
        return LaunchIntent(configuration, (), mark, str(tmp_path / f"{mark}.log"))

    return make
