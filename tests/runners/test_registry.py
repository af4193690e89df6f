"""Runners by name."""

from __future__ import annotations

import pytest

from runners import registry
from runners.registry import make_runner, register, runner_names


def test_a_registered_runner_is_made_and_named_in_errors(study, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))
    calls = []

    def factory(study, **options):
        calls.append((study, options))
        return "table runner"

    register("table", factory)
    assert runner_names() == ("sglang", "simulated", "table")
    assert make_runner("table", study, seed=3, log_dir=tmp_path, first_launch=2) == "table runner"
    options = {"seed": 3, "log_dir": tmp_path, "first_launch": 2, "timeouts": None}
    assert calls == [(study, options)]
    with pytest.raises(ValueError, match=r"unknown runner 'gpu'.*table"):
        make_runner("gpu", study, seed=0, log_dir=tmp_path)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="'sglang' is already registered"):
        register("sglang", lambda study, **_: study)
