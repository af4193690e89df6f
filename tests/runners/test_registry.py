"""Runners by name."""

from __future__ import annotations

import pytest

from runners.registry import make_runner, register, runner_names


def test_duplicate_name_is_refused(study, tmp_path):
    assert runner_names()[:2] == ("sglang", "simulated")
    with pytest.raises(ValueError, match="'sglang' is already registered"):
        register("sglang", "elsewhere:Runner")
    with pytest.raises(ValueError, match=r"unknown runner 'gpu'.*sglang or simulated"):
        make_runner("gpu", study, seed=0, log_dir=tmp_path)
