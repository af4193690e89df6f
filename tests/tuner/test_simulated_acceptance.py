"""A study with simulated acceptance is refused unless it says so, and every output is marked."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3

import pytest

from search_spaces.simulated_acceptance import NOTICE
from search_spaces.study_file.load import load_study

from ..quick_profile import write_quick_profile
from .conftest import small_text
from .loop.test_sweep_simulated import check_schema

pytestmark = pytest.mark.slow

LENGTH = "SGLANG_SIMULATE_ACC_LEN"
DECLARED = "simulated_acceptance: true\n"


@pytest.fixture
def write(tuner):
    """Writes a small study whose servers simulate an accept length of 1.5."""

    def write_study(declared=DECLARED):
        profile = write_quick_profile(tuner.folder)
        text = small_text(steps="[1]", protos="[null]", launches=2, profile=profile)
        text = text.replace("server:\n", f'server:\n  env: {{{LENGTH}: "1.5"}}\n')
        (tuner.folder / "small.yaml").write_text(declared + text)
        return "./small.yaml"

    return write_study


def test_validate_and_sweep_refuse_undeclared_simulated_acceptance(write, call):
    path = write(declared="")
    out, _ = call("validate", "--study", path, "--json", code=2)
    [problem] = check_schema(json.loads(out), "validate")["errors"]
    assert problem["key"] == f"server.env.{LENGTH}"
    _, err = call("sweep", "--study", path, code=2)
    assert "`simulated_acceptance: true`" in err


def test_every_output_is_marked(write, call, tuner):
    path = write()
    validated = json.loads(call("validate", "--study", path, "--json")[0])
    assert validated["simulated_acceptance"] is True
    assert any(NOTICE in warning for warning in validated["warnings"])
    assert NOTICE in call("sweep", "--study", path, "--dry-run")[0]
    out, err = call("sweep", "--study", path)
    assert NOTICE in out
    assert NOTICE in err

    at = ("--study", "small")
    report = check_schema(json.loads(call("show", *at, "--json")[0]), "report")
    assert report["simulated_acceptance"] is True
    assert any(NOTICE in warning for warning in report["best"]["warnings"])
    speculative = report["trials"][1]
    assert speculative["configuration"]["speculation"]["algorithm"] == "EAGLE3"
    assert speculative["accept_length"] == pytest.approx(1.5, abs=0.15)
    assert NOTICE in call("show", *at, "--trial", "1")[0]
    assert json.loads(call("show", *at, "--trial", "1", "--json")[0])["simulated_acceptance"]

    explained = json.loads(call("explain", *at, "--json")[0])
    assert check_schema(explained, "explain")["simulated_acceptance"] is True
    assert NOTICE in call("explain", *at)[0]

    for kind in ("shell", "yaml", "compose", "k8s", "systemd", "sglang-config"):
        assert NOTICE in call("export", *at, "--format", kind)[0]
    exported = check_schema(json.loads(call("export", *at, "--format", "json")[0]), "export")
    assert exported["simulated_acceptance"] is True
    assert any(NOTICE in warning for warning in exported["warnings"])
    assert NOTICE in call("export", *at, "--diff")[0]
    assert json.loads(call("export", *at, "--diff", "--json")[0])["simulated_acceptance"] is True

    [listed] = json.loads(call("db", "list", "--json")[0])["studies"]
    assert listed["simulated_acceptance"] is True
    assert NOTICE in call("db", "list")[0]


def test_a_stored_study_goes_on_and_its_fork_must_declare_it(write, call, tuner):
    path = write()
    call("sweep", "--study", path, "--launches", "1")
    # As an older version stored it, which took the variable without a word.
    text = load_study(tuner.folder / "small.yaml").text.removeprefix(DECLARED)
    digest = hashlib.sha256(text.encode()).hexdigest()
    with contextlib.closing(sqlite3.connect(tuner.folder / "tuner.db")) as database, database:
        database.execute(
            "UPDATE tuner_studies SET text = ?, digest = ?, stopped = NULL, budget_launches = 2",
            (text, digest),
        )
    out, err = call("resume", "--study", "small")
    assert "launch 1" in err
    assert NOTICE in out
    _, refused = call("resume", "--study", "small", "--fork", "new", code=2)
    assert f"server.env.{LENGTH}" in refused
    forked, _ = call("resume", "--study", path, "--fork", "new", "--json")
    assert json.loads(forked)["simulated_acceptance"] is True


def test_a_variable_of_the_callers_shell_does_not_reach_the_servers(
    tuner, call, write_small, monkeypatch
):
    monkeypatch.setenv(LENGTH, "4.0")
    path = write_small(steps="[1]", protos="[null]", launches=2)
    out, err = call("sweep", "--study", path, "--json")
    assert f"note: {LENGTH} in your shell would make SGLang simulate acceptance" in err
    report = json.loads(out)
    assert report["simulated_acceptance"] is False
    assert all(LENGTH not in launch["environment"] for launch in report["launches"])
    assert report["trials"][1]["configuration"]["speculation"]["num_steps"] == 3
    assert report["trials"][1]["accept_length"] < 2.5  # by the profile, not by the variable
