"""What tests of several parts share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .examples import load_profile
from .postgres_server import empty_postgres_address, postgres, postgres_address  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]

# A background job of a script inherits an ignored SIGINT, and would hand it on to the processes
# that these tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What whoever runs the tests has set for other programs: proxies, widths and colours of terminals,
# settings of servers; and for their own tuner, whose database is none of the tests'.
FOREIGN = (
    *("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "COLUMNS", "LINES"),
    *("FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "GITHUB_ACTIONS"),
)
KEPT = ("TUNER_TESTS_", "TUNER_SGLANG_")
for _name in list(os.environ):
    if _name.upper() in FOREIGN or (
        _name.startswith(("NCCL_", "SGLANG_", "TUNER_")) and not _name.startswith(KEPT)
    ):
        del os.environ[_name]

load_profile()

_directories: dict[Path, pytest.Collector | None] = {}


@pytest.hookimpl(wrapper=True)
def pytest_collect_directory(path: Path) -> Iterator[None]:
    """Give each folder one node. pytest 9.1.1 makes a second node if a file beside it is named.

    The fixtures of the folder's conftest.py belong to the first node only, so `pytest a/b/test_1.py
    a/test_2.py a/b/test_3.py` does not find them in test_3 (https://github.com/pytest-dev/pytest/issues/14635).
    """
    node = yield
    return _directories.setdefault(path, node)


class Tuner:
    """The command line as a user runs it: a process in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TUNER_")}
        self.env["PYTHONPATH"] = str(ROOT)
        # Tests that run at once have each a machine to themselves.
        self.env["TUNER_LOCKS"] = str(folder / "locks")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tuner", *arguments],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *arguments: str, code: int = 0, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(process.args, code, out, err)


@pytest.fixture(scope="session", autouse=True)
def _own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The same for tests that run a tuner in their own process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture
def tuner(tmp_path: Path) -> Tuner:
    return Tuner(tmp_path)
