"""Who is to blame for a failure: every fault, in every position."""

from __future__ import annotations

import pytest

from results.records import Failure, Launch, LaunchIntent, LaunchState, TrialState
from search_spaces.configuration import Configuration
from tuner.blame import HOST_FAULTS, HOST_PAUSES_S, blame, killed_again

KILL = Failure("server_killed", "load", "host", "the server was killed by SIGKILL")


def blamed(fault, *, switched=False, is_reference=False, host_faults=0):
    return blame(
        Failure("some_kind", "load", fault, "It broke."),
        study="kimi",
        log="launch.log",
        switched=switched,
        is_reference=is_reference,
        host_faults=host_faults,
    )


def launch(number, failure=None, trials=(0,)):
    intent = LaunchIntent(Configuration(), (), f"mark{number}", "launch.log")
    return Launch(number, LaunchState.FAILED, intent, failure=failure, trials=trials)


def test_a_configuration_that_cannot_run_is_infeasible():
    found = blamed("configuration")
    assert (found.launch, found.trials) == (LaunchState.INFEASIBLE, TrialState.INFEASIBLE)
    assert found.stop is None
    assert found.pause_s == 0.0


def test_a_launch_for_many_settings_blames_none_of_them():
    found = blamed("configuration", switched=True, is_reference=True)
    assert (found.launch, found.trials, found.stop) == (LaunchState.FAILED, None, None)


def test_without_the_reference_the_study_stops_with_its_log():
    found = blamed("configuration", is_reference=True)
    assert (found.launch, found.trials) == (LaunchState.FAILED, TrialState.FAILED)
    assert "launch.log" in found.stop


def test_a_fault_of_the_study_stops_it_and_says_how_to_go_on():
    found = blamed("study", switched=True)
    assert (found.launch, found.trials) == (LaunchState.FAILED, TrialState.FAILED)
    assert "tuner sweep" in found.stop


@pytest.mark.parametrize("fault", ["host", "client"])
def test_a_lost_launch_is_tried_again_later_and_then_pauses_the_study(fault):
    found = [blamed(fault, host_faults=lost) for lost in range(HOST_FAULTS)]
    assert [f.pause_s for f in found] == [*HOST_PAUSES_S, 0.0]
    assert all(f.trials is None and f.launch is LaunchState.FAILED for f in found)
    assert [f.stop is not None for f in found] == [False] * len(HOST_PAUSES_S) + [True]
    assert "tuner resume --study kimi" in found[-1].stop


def test_a_server_killed_twice_at_one_configuration_is_unstable():
    now = launch(2)
    assert killed_again(KILL, now, [0], [launch(1, KILL), now]).kind == "unstable"
    assert killed_again(KILL, now, [0], [launch(1, KILL), now]).fault == "configuration"


@pytest.mark.parametrize(
    "earlier",
    [launch(1, KILL, trials=(7,)), launch(1, Failure("cuda_oom", "load", "configuration", "x"))],
    ids=["another trial", "another failure"],
)
def test_a_server_killed_once_is_not(earlier):
    assert killed_again(KILL, launch(2), [0], [earlier, launch(2, KILL)]) == KILL


def test_other_failures_are_left_as_they_are():
    failure = Failure("cuda_oom", "load", "configuration", "x")
    assert killed_again(failure, launch(2), [0], [launch(1, KILL)]) == failure
