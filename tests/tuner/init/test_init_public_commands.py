"""`tuner init` makes a valid study of every public launch command in tests/data/commands."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from search_spaces.launch_commands import read_launch_text
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study
from search_spaces.study_file.warnings import warnings
from tuner.cli.app import run
from tuner.init.today import unresolved

pytestmark = pytest.mark.slow

COMMANDS = sorted((Path(__file__).parents[2] / "data" / "commands").iterdir())
# Values of script variables by name.
STAND_INS = (
    ("INDEX|RANK|PROCID|NODEID", "0"),
    ("GROUP_SIZE|NODES", "2"),
    ("MODEL", "Qwen/Qwen3-8B"),
    ("FRAC", "0.85"),
    ("TP|SIZE|NUM|COUNT|GPU|WORLD|CONC|TOKENS|STEPS|BS|LEN|BATCH", "8"),
    ("PORT", "30000"),
    ("", "stand-in"),
)
# Warnings about decisions that only the user can make.
UNAVOIDABLE = re.compile(
    r"production\.command: |server\.(flags|env)\.\S+: "
    # Today's command uses a tree, on the backend that SGLang selects.
    r"|attention-backend is not set|No speculative algorithm"
)


VARIANTS = (
    ("--interconnect", "pcie"),
    ("--interconnect", "nvlink", "--concurrency", "8,64", "--rate", "4"),
)
"""Options of every other command."""


@pytest.mark.parametrize("path", COMMANDS, ids=[path.name for path in COMMANDS])
def test_a_public_command_becomes_a_valid_study(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    launch = read_launch_text(path.read_text())
    sets = []
    for name in unresolved(launch):
        value = next(value for pattern, value in STAND_INS if re.search(pattern, name))
        sets += ["--set", f"${name}={value}"]
    others = VARIANTS[COMMANDS.index(path) % len(VARIANTS)]
    arguments = ["--force", "--output", "made.yaml", *others, *sets]
    code = run(["init", "--from-command", str(path), *arguments])
    said = capsys.readouterr()
    assert code == 0, said.err
    code = run(["validate", "--study", "./made.yaml", "--no-sglang"])
    assert code == 0, capsys.readouterr().err
    capsys.readouterr()
    study = load_study("./made.yaml")
    assert [note for note in warnings(study) if not UNAVOIDABLE.match(note)] == []
    assert {"none", "production"} <= set(baselines(study))
    assert len(Space(study)) >= 1
    # Fixed flags keep the order of the command.
    mine = [name for name in launch.flags if name in study.server.flags]
    assert [name for name in study.server.flags if name in mine] == mine
