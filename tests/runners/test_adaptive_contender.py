"""Adaptive speculation as a contender: its steps change as it runs, and it is no other server."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from runners.base import differences
from runners.conformance import Launcher
from runners.server_info import speculation_of
from runners.sglang.readback import resolved_of
from runners.simulated import SimulatedRunner
from search_spaces.configuration import Configuration, Speculation
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from search_spaces.workload import OperatingPoint

pytestmark = pytest.mark.slow

BODIES = Path(__file__).parent.parent / "data" / "bodies"
STUDY = """\
study: adaptive
model: {path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}
server: {flags: {tp-size: 8}}
space:
  speculation:
    - algorithm: none
    - {algorithm: EAGLE3, num_steps: [1, 3, 5], topk: 1}
    - {algorithm: EAGLE3, num_steps: [3, 5], topk: 1, flags: {speculative-adaptive: [true]}}
workload: {prompts: {chat: 1}, output_tokens: 128, requests: 12}
budget: {launches: 4}
runner: simulated
simulated: {profile: kimi, time_scale: 100.0}
"""


@pytest.fixture
def study():
    return parse_study(STUDY, "adaptive")


def chain(steps: int, adaptive: bool | None) -> Configuration:
    speculation = Speculation("EAGLE3", steps, 1, steps + 1)
    return Configuration.of(speculation, draft_tp=8, flags={"speculative-adaptive": adaptive})


def test_it_is_a_point_beside_the_fixed_chains(study):
    points = Space(study).points
    assert {chain(3, None), chain(5, None), chain(3, True), chain(5, True)} < {*points}
    assert len(points) == 1 + 3 + 2
    assert all(dict(b.flags)["speculative-adaptive"] is None for b in baselines(study).values())


def test_a_server_whose_steps_have_changed_is_the_one_that_was_asked_for(study, tmp_path):
    """Measured until its steps are others than at its start, which the scheduler tells."""
    launcher = Launcher(SimulatedRunner(study, seed=0, log_dir=tmp_path), tmp_path)
    asked = chain(5, True)
    with launcher.start(asked) as session:
        assert differences(asked, session.resolved.configuration) == ()
        session.measure(OperatingPoint(1))
        (log,) = tmp_path.glob("**/*.log")
        assert "Adaptive spec params updated" in log.read_text()


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_the_steps_of_a_moment_are_not_those_that_were_asked_for(study, steps):
    body = json.loads((BODIES / "0.5.23-cpu/standalone_server_info.json").read_text())
    asked = chain(3, True)
    start = {
        "speculative_algorithm": "EAGLE3",
        "speculative_eagle_topk": 1,
        "speculative_num_steps": 3,
        "speculative_num_draft_tokens": 4,
        "speculative_adaptive": True,
        "tp_size": 8,
    }
    now = {"speculative_num_steps": steps, "speculative_num_draft_tokens": steps + 1}
    body |= start
    state = body["internal_states"][0]
    state |= start | now
    assert speculation_of(body).num_steps == steps
    resolved = resolved_of(asked, study, body, {})
    assert resolved.configuration.speculation == asked.speculation
    assert differences(asked, resolved.configuration) == ()
    # Started elsewhere, or not adaptive at all: a server other than the one that was asked for.
    other = copy.deepcopy(body) | {"speculative_num_steps": 5, "speculative_num_draft_tokens": 6}
    assert "num_steps: asked 3, runs 5" in differences(
        asked, resolved_of(asked, study, other, {}).configuration
    )
    dropped = copy.deepcopy(body) | {"speculative_adaptive": False}
    found = differences(asked, resolved_of(asked, study, dropped, {}).configuration)
    assert "speculative-adaptive: asked True, runs None" in found
    assert f"num_steps: asked 3, runs {steps}" in found


def test_what_adapts_by_itself_is_not_switched(study, tmp_path):
    runner = SimulatedRunner(study, seed=0, log_dir=tmp_path)
    assert runner.can_switch(chain(3, None), chain(5, None))
    assert not runner.can_switch(chain(3, True), chain(5, True))
    assert not runner.can_switch(chain(3, True), chain(3, None))
    assert runner.can_switch(chain(3, True), chain(3, True))
