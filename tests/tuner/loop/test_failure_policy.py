"""Who is to blame for a failure: every fault, in every position."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from results.records import (
    Failure,
    Launch,
    LaunchIntent,
    LaunchState,
    Purpose,
    Trial,
    TrialState,
)
from search_spaces.configuration import Configuration, Setting
from tuner.loop.failure_policy import HOST_FAULTS, HOST_PAUSES_S, consequences_of, killed_again

ROOT = Path(__file__).parents[3]
KILL = Failure("server_killed", "load", "host", "the server was killed by SIGKILL")


def blamed(fault, *, switched=False, is_reference=False, host_faults=0):
    return consequences_of(
        Failure("some_kind", "load", fault, "It broke."),
        study="kimi",
        log="launch.log",
        switched=switched,
        is_reference=is_reference,
        host_faults=host_faults,
    )


def launch(number, failure=None, trials=(0,), *, switched=False, ready_s=None):
    settings = (Setting(1), Setting(2)) if switched else ()
    intent = LaunchIntent(Configuration(), settings, f"mark{number}", "launch.log")
    return Launch(
        number, LaunchState.FAILED, intent, failure=failure, trials=trials, ready_s=ready_s
    )


def trials(**judged_in):
    """Trials `t0`, `t1`, ... by the launch that judged them."""
    return {
        int(name[1:]): Trial(
            int(name[1:]),
            Purpose.SEARCH,
            TrialState.RUNNING if by is None else TrialState.COMPLETE,
            Configuration(),
            judged_in=by,
        )
        for name, by in judged_in.items()
    }


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
    again = killed_again(KILL, now, [0], [launch(1, KILL), now], trials(t0=None))
    assert (again.kind, again.fault) == ("unstable", "configuration")


ANCHORED = {"trials": (0, 1, 2), "switched": True}


@pytest.mark.parametrize(
    ("ready_s", "judged_in", "met", "again"),
    [
        (9.0, {"t1": 2, "t2": None}, 2, True),  # it was at trial 2
        (9.0, {"t1": 2, "t2": None}, 0, False),  # the anchor was behind it
        (9.0, {"t1": 3, "t2": None}, 1, False),  # trial 1 was judged later: it was at the anchor
        (9.0, {"t1": 3, "t2": None}, 0, True),
        (9.0, {"t1": None, "t2": None}, 2, False),  # it never got there
        (None, {"t1": None, "t2": None}, 1, False),  # a start for all is not one of its own
    ],
)
def test_only_what_a_killed_launch_was_at_is_blamed_in_one_of_its_own(
    ready_s, judged_in, met, again
):
    known = trials(t0=1, **judged_in)
    earlier = launch(2, KILL, ready_s=ready_s, **ANCHORED)
    found = killed_again(KILL, launch(9, trials=(met,)), [met], [earlier], known)
    assert (found.kind == "unstable") is again


def test_a_start_for_many_settings_that_is_killed_twice_is_unstable():
    known = trials(t0=1, t1=None, t2=None)
    earlier = launch(2, KILL, **ANCHORED)
    found = killed_again(KILL, launch(3, **ANCHORED), [1, 2], [earlier], known)
    assert found.kind == "unstable"


@pytest.mark.parametrize(
    "earlier",
    [launch(1, KILL, trials=(7,)), launch(1, Failure("cuda_oom", "load", "configuration", "x"))],
    ids=["another trial", "another failure"],
)
def test_a_server_killed_once_is_not(earlier):
    known = trials(t0=None, t7=None)
    assert killed_again(KILL, launch(2), [0], [earlier, launch(2, KILL)], known) == KILL


def test_other_failures_are_left_as_they_are():
    failure = Failure("cuda_oom", "load", "configuration", "x")
    assert killed_again(failure, launch(2), [0], [launch(1, KILL)], trials(t0=None)) == failure


MAKERS = {"Failure", "_error", "load_error"}
"""Functions whose first argument is the kind of a failure."""


def kinds_in(module):
    """Kinds that a module names where it makes a failure."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in MAKERS and node.args:
            for part in ast.walk(node.args[0]):
                if isinstance(part, ast.Constant) and re.fullmatch(r"[a-z_]+", str(part.value)):
                    yield part.value


def test_docs_list_every_kind_that_the_tuner_detects():
    page = (ROOT / "docs" / "failures.md").read_text()
    modules = [m for folder in ("tuner", "runners") for m in (ROOT / folder).rglob("*.py")]
    found = {kind for m in modules if "simulated_server" not in m.parts for kind in kinds_in(m)}
    assert len(found) > 20
    assert {kind for kind in found if f"`{kind}`" not in page} == set()
