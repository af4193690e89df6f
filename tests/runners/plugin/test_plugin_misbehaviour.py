"""Faults of the plugin and of switched servers.

The faults are the rows of the simulated server's page; a wrong row fails.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from runners.base import RunnerError
from runners.conformance import Launcher
from runners.plugin.status import StateCost, status_of
from runners.simulated import SimulatedRunner
from runners.simulated_server.engine.profile import PROFILES
from search_spaces.configuration import Setting
from search_spaces.study_file.load import parse_study
from search_spaces.workload import OperatingPoint

from ..conftest import STUDY, eagle3
from ..misbehaviour_table import plugin_examples

pytestmark = pytest.mark.slow

POINT = OperatingPoint(1)
SETTINGS = tuple(map(Setting, (2, 1, 5)))
FORWARDS = ("draft", "draft_extend", "verify")


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """The Kimi machine without noise and start-up time."""
    data = yaml.safe_load((PROFILES / "kimi.yaml").read_text())
    data |= {
        "noise": {"launch": 0.0, "block": 0.0, "prompt": 0.0},
        "startup": dict.fromkeys(data["startup"], 0.0) | {"switchable_step_s": 0.3},
    }
    path = tmp_path_factory.mktemp("profile") / "quick.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture
def launcher(profile, tmp_path):
    def make(trouble=None):
        env = {"TUNER_SIM_MISBEHAVE": json.dumps([trouble])} if trouble else {}
        study = parse_study(STUDY, "quick")
        runner = SimulatedRunner(
            study, seed=0, log_dir=tmp_path, profile=str(profile), time_scale=20.0, env=env
        )
        return Launcher(runner, tmp_path)

    return make


def said(*words):
    return [
        pytest.param(example, code, id=example["kind"])
        for example, word, code in plugin_examples()
        if word in words
    ]


@pytest.mark.parametrize(("trouble", "kind"), said("failure"))
def test_failed_switch_is_a_fault_of_the_configuration(trouble, kind, launcher, monkeypatch):
    if trouble["kind"] == "plugin_half":  # do not wait for lines that never come
        monkeypatch.setattr("runners.plugin.status._LINES_S", 0.5)
    one = launcher(trouble)
    with pytest.raises(RunnerError) as caught, one.start(eagle3(2), SETTINGS) as session:
        session.apply(Setting(2))
    assert (caught.value.failure.kind, caught.value.failure.fault) == (kind, "configuration")
    one.assert_nothing_left()


@pytest.mark.parametrize(("trouble", "code"), said("invalid"))
def test_window_of_another_setting_is_invalid(trouble, code, launcher):
    with launcher(trouble).start(eagle3(2), SETTINGS) as session:
        session.apply(Setting(2))
        found = session.measure(POINT).invalid
    assert code in {reason.split(":")[0] for reason in found}


def windows(launcher, trouble):
    """Windows at two steps: of a switched server and of a separate launch."""
    with launcher(trouble).start(eagle3(2), SETTINGS) as session:
        assert session.resolved.configuration.speculation == eagle3(5).speculation
        session.apply(Setting(2))
        switched = session.measure(POINT)
    with launcher(trouble).start(eagle3(2)) as session:
        own = session.measure(POINT)
    for window in (switched, own):
        codes = {reason.split(":")[0] for reason in window.invalid}
        assert "setting_not_in_force" not in codes
    assert switched.accept_length == own.accept_length
    ((one,), (other,)) = switched.cycle.batches, own.cycle.batches
    assert one.size == other.size == 1
    return one, other


def test_switched_server_has_the_cycle_times_of_a_separate_launch(launcher):
    switched, own = windows(launcher, None)
    for name in FORWARDS:
        assert switched.parts[name].median_s == own.parts[name].median_s
        assert switched.parts[name].graph_share == own.parts[name].graph_share == 1.0
    assert switched.cycle.median_s == pytest.approx(own.cycle.median_s, rel=0.001)
    # Without the warm-up's cycles: 4 answers of 32 tokens.
    assert switched.parts["verify"].count == own.parts["verify"].count < 4 * 31


@pytest.mark.parametrize(("trouble", "part"), said("clock"))
def test_changed_part_shows_in_the_cycle_times(trouble, part, launcher):
    switched, own = windows(launcher, trouble)
    for name in FORWARDS:
        factor = trouble["factor"] if name == part else 1.0
        expected = factor * own.parts[name].median_s
        assert switched.parts[name].median_s == pytest.approx(expected, rel=0.021)
    eager = switched.parts[part].graph_share == 0.0
    assert eager == (trouble["kind"] == "switch_eager")


def test_refused_clock_is_left_out_and_the_launch_repeated(launcher):
    one = launcher({"kind": "plugin_refused"})
    assert one.runner.remarks() == ()
    with one.start(eagle3(2)) as session:
        assert len(one.processes) == 2, "the first one refused and ended"
        assert session.measure(POINT).cycle is None
    (remark,) = one.runner.remarks()
    assert "REFUSED clock" in remark
    with one.start(eagle3(2)) as session:
        assert status_of(session.resolved.server_info) is None
    assert len(one.processes) == 3, "the clock is not tried again"
    one.assert_nothing_left()


def test_refused_clock_is_tried_again_for_other_configurations(launcher):
    runner = launcher({"kind": "plugin_refused"}).runner
    refused = dict(eagle3(2).flags) | {"attention-backend": "triton"}
    one = Launcher(runner, runner._log_dir)
    with one.start(replace(eagle3(2), flags=tuple(refused.items()))):
        assert len(one.processes) == 2
    (remark,) = runner.remarks()
    assert runner.no_clock(eagle3(2)) is None
    with one.start(eagle3(2)):
        assert len(one.processes) == 4, "tried for another configuration, refused here too"
    assert runner.remarks() == (remark,), "reported once"


def test_dropped_variables_are_reported_once(launcher, tmp_path):
    """The command that starts the server drops the variables."""
    runner = SimulatedRunner(
        launcher().runner._study,
        seed=0,
        log_dir=tmp_path,
        profile=launcher().runner._profile,
        time_scale=20.0,
        env={"TUNER_CYCLE_CLOCK": None},
    )
    one = Launcher(runner, tmp_path)
    for _ in range(2):
        with one.start(eagle3(2)) as session:
            assert session.measure(POINT).cycle is None
        (remark,) = runner.remarks()
        assert "passes PYTHONPATH and TUNER_CYCLE_CLOCK on" in remark
    assert len(one.processes) == 2


def test_status_keeps_the_cost_of_states_and_drops_clock_counts(launcher):
    one = launcher()
    with one.start(eagle3(2), SETTINGS) as session:
        session.apply(Setting(1))
        session.measure(POINT)
        resolved = session.apply(Setting(2))
    assert one.runner.remarks() == ()
    status = status_of(resolved.server_info)
    assert (status.in_force, status.switches) == (Setting(2), 2)
    assert set(status.states) == set(SETTINGS)
    assert status.states[Setting(5)] == StateCost(0.0, 0.0)
    assert status.states[Setting(1)].build_s == pytest.approx(0.3 / 20.0)
    assert (status.has_clock, status.clock) == (True, {})
