"""Compiled modules for servers whose installation has none."""

from __future__ import annotations

import compileall
import os
import py_compile
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from runners.process.environment import CommandPrefix, LocalEnvironment
from runners.sglang.bytecode import bytecode_folder, bytecode_variables

from ..fake_sglang import write_sglang

if TYPE_CHECKING:
    from pathlib import Path

HERE = LocalEnvironment(sys.executable)
WRITES_NONE = "1"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    return write_sglang(tmp_path / "site")


def variables(site: Path, writes: str | None) -> dict[str, str | None]:
    return {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": writes}


def compile_all(site: Path) -> None:
    assert compileall.compile_dir(site, quiet=1)


def test_an_installation_without_bytecode_that_may_write_none_is_given_a_folder(site):
    given = bytecode_variables(HERE, variables(site, WRITES_NONE))
    folder = bytecode_folder()
    assert given == {"PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": None}
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONPYCACHEPREFIX": str(folder)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    run = [sys.executable, "-c", "import sglang.srt.server_args"]
    subprocess.run(run, env=env, check=True, stdout=subprocess.DEVNULL)
    assert [path.stem.split(".")[0] for path in folder.rglob("server_args*.pyc")] == ["server_args"]
    assert not list(site.rglob("*.pyc")), "nothing of the installation is changed"


def test_bytecode_that_is_there_is_used(site):
    compile_all(site)
    assert bytecode_variables(HERE, variables(site, WRITES_NONE)) == {}


def test_bytecode_of_other_sources_is_none(site):
    compile_all(site)
    source = site / "sglang" / "srt" / "server_args.py"
    later = time.time() + 100
    os.utime(source, (later, later))  # as a copy that did not keep the times
    assert bytecode_variables(HERE, variables(site, WRITES_NONE)) != {}


def test_bytecode_that_is_valid_by_its_hash_needs_no_times(site):
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    assert compileall.compile_dir(site, quiet=1, invalidation_mode=mode)
    source = site / "sglang" / "srt" / "server_args.py"
    os.utime(source, (1, 1))
    assert bytecode_variables(HERE, variables(site, WRITES_NONE)) == {}


def test_what_the_first_launch_writes_by_itself_needs_nothing(site):
    assert bytecode_variables(HERE, variables(site, None)) == {}


@pytest.mark.parametrize(
    "why",
    [
        {"PYTHONPYCACHEPREFIX": "/somewhere"},
        {"PYTHONPATH": ""},
    ],
    ids=["chosen by the study", "no SGLang"],
)
def test_nothing_is_changed_otherwise(site, why):
    assert bytecode_variables(HERE, variables(site, WRITES_NONE) | why) == {}


def test_not_behind_a_prefix_nor_with_an_interpreter_that_fails(site):
    assert bytecode_variables(CommandPrefix(("env",), sys.executable), {}) == {}
    assert bytecode_variables(LocalEnvironment(str(site / "none")), {}) == {}
