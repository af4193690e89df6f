"""Adaptive steps compared with the recorded choices of SGLang 0.5.23's class."""

import json
from pathlib import Path

import pytest

from runners.simulated_server.engine.adaptive import AdaptiveSteps, adaptive_steps, candidate_steps

CASES = json.loads((Path(__file__).parents[2] / "data" / "adaptive_0.5.23.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[f"{i}" for i in range(len(CASES))])
def test_the_same_steps_as_sglang(case, tmp_path):
    config = None
    if case["config"] is not None:
        config = tmp_path / "config.json"
        config.write_text(json.dumps(case["config"]))
    adaptive = AdaptiveSteps(case["initial"], config)
    assert candidate_steps(config) == case["candidates"]
    chosen = []
    for size, correct in case["inputs"]:
        chosen.append(adaptive.steps(size))
        adaptive.verified(size, [correct, *[0] * (size - 1)])
    assert chosen == case["steps"]
    assert len(set(chosen)) > 2


def test_adaptive_steps_need_the_flag():
    assert adaptive_steps({}, 3) is None
    assert adaptive_steps({"speculative_adaptive": True}, 3).steps(1) == 3
    # The tier of the largest batches has no candidate of three steps.
    assert adaptive_steps({"speculative_adaptive": True}, 3).steps(64) == 0


def test_a_change_is_logged():
    lines = []
    adaptive = AdaptiveSteps(3, log=lines.append)
    for _ in range(15):
        adaptive.verified(1, [3])
    assert lines == ["Adaptive spec params updated: steps 3 -> 5 (ema_accept_len=2.96)"]


@pytest.mark.parametrize(
    ("config", "message"),
    [({"x": 1}, "at least one"), ({"1": {"candidate_steps": [-1]}}, "non-negative")],
)
def test_a_bad_file_is_refused(config, message, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        AdaptiveSteps(3, path)
