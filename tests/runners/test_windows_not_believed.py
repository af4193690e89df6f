"""Misbehaving simulated servers in a launch of the tuner's own: measured, and not believed.

What a scripted server shows of each check is in `load/test_validity_end_to_end.py`; here the whole
chain runs: a real process, its log, its identity, a session.
"""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from results.records import TrialState
from runners.base import RunnerError
from runners.server_info import read_server_info
from runners.simulated import SimulatedRunner
from search_spaces.study_file.load import parse_study
from search_spaces.workload import OperatingPoint
from tuner.verdict.scores import judge

from .conftest import STUDY, eagle3

pytestmark = pytest.mark.slow

POINT = OperatingPoint(2, requests=12)


@pytest.fixture(scope="module")
def study():
    text = STUDY.replace("time_scale: 100.0", "time_scale: 40.0")
    # Stale accounts are those of an earlier answer of the same length.
    equal = "output_tokens: {mean: 64, spread: 0}"
    return parse_study(text.replace("output_tokens: 32", equal), "quick")


@pytest.fixture
def start(study, tmp_path, intent):
    def start_server(*misbehaviours):
        env = {"TUNER_SIM_MISBEHAVE": json.dumps(misbehaviours)}
        runner = SimulatedRunner(study, seed=0, log_dir=tmp_path, env=env)
        return runner.start(intent(eagle3(3)), lambda *_: None)

    return start_server


def codes(found):
    return {reason.split(":", 1)[0] for reason in found}


def test_a_good_server_is_believed(start):
    with start() as session:
        measurement = session.measure(POINT)
    # A machine that is busy may well not be steady.
    assert codes(measurement.invalid) <= {
        "unsteady",
        "silent",
        "client_paused",
        "client_saturated",
        "lock_step",
        "simulation_behind",
    }
    assert measurement.accept_length > 1.05
    assert "degenerate_output" not in codes(measurement.warnings)


AFTER_START = {"after_requests": 3}


@pytest.mark.parametrize(
    ("expected", "misbehaviours"),
    [
        (
            {"acceptance_missing", "cached_tokens"},
            ({"kind": "acceptance_missing"}, {"kind": "cached_tokens"}),
        ),
        (
            {"acceptance_stale", "compiled"},
            ({"kind": "acceptance_stale", **AFTER_START}, {"kind": "jit"}),
        ),
        (
            {"accept_length", "failed_requests"},
            (
                {"kind": "acceptance_impossible"},
                {"kind": "http_500", "share": 0.5, "after_requests": 10},
            ),
        ),
        (
            {"acceptance_counts", "completion_tokens"},
            ({"kind": "acceptance_inconsistent"}, {"kind": "wrong_tokens", **AFTER_START}),
        ),
    ],
    ids=lambda value: " and ".join(sorted(value)) if isinstance(value, set) else "",
)
def test_it_is_measured_and_not_believed(start, expected, misbehaviours):
    with start(*misbehaviours) as session:
        measurement = session.measure(POINT)
    assert expected <= codes(measurement.invalid), measurement.invalid
    assert measurement.samples
    assert judge([measurement], {})[0] is TrialState.INVALID


def test_garbage_at_full_speed_is_seen_for_free(start):
    with start({"kind": "garbage"}) as session:
        measurement = session.measure(POINT)
    assert {"degenerate_output", "low_acceptance"} <= codes(measurement.warnings)


def test_a_server_that_somebody_started_again_is_not_ours(start):
    """A supervisor starts it again when it dies of idleness: same flags, same port, all healthy."""
    with start({"kind": "restart", "delay_s": 160.0}) as session:
        port = session.resolved.server_info["port"]
        launched = session.resolved.server_info["startup_time"]
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(RunnerError):
                info = read_server_info(f"http://127.0.0.1:{port}")
                if info["startup_time"] != launched and info["status"] == "ready":
                    break
            time.sleep(0.2)
        measurement = session.measure(POINT)
    assert "server_not_ours" in codes(measurement.invalid)
    assert judge([measurement], {})[0] is TrialState.INVALID
