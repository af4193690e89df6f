"""Switched launches end to end: real processes, servers that are not what they say, and a kill."""

from __future__ import annotations

import json
import time

import jsonschema
import psutil
import pytest

from results.store import Store
from tuner.hot_switch.switching import read_switching

from ...quick_profile import write_quick_profile
from ..reports.test_report import SCHEMA

pytestmark = pytest.mark.slow


def plant(folder, **trouble) -> str:
    """A profile of the Kimi machine with a misbehaviour; its name for a study."""
    return write_quick_profile(folder, misbehave=[trouble])


def test_a_graph_that_is_missing_in_switched_states_costs_launches_and_no_answer(
    tuner, write_small, call
):
    # Cheap on this machine: tok/s would never tell.
    profile = plant(tuner.folder, kind="switch_eager", factor=1.01)
    path = write_small(profile=profile, protos="[null]", steps="[1, 2]")
    out, told = call("sweep", "--study", path, "--json")
    report = json.loads(out)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert report["budget"]["stopped"] == "exhausted"
    assert (
        "graphs of draft_extend at batch 1: separate 100%, switched 0%"
        in report["hot_switch"]["gave_up"]
    )
    assert "hot switching is off" in told
    assert "(unfaithful, a fault of the switched server)" in told
    [unfaithful] = [x for x in report["launches"] if x["state"] == "failed"]
    assert unfaithful["failure"]["kind"] == "unfaithful"
    assert unfaithful["steps"] == [3, 1, 2, 4]
    judging = {t["launches"][-1] for t in report["trials"][2:]}
    assert unfaithful["id"] not in judging
    assert {t["state"] for t in report["trials"]} == {"complete"}
    shown, _ = call("show", "--study", "small")
    assert "hot switch off, every setting" in shown


def test_a_server_without_the_plugin_is_known_before_one_is_started_for_many_settings(
    tuner, write_small, call
):
    profile = plant(tuner.folder, kind="plugin_missing")
    path = write_small(profile=profile, protos="[null]", steps="[1, 2]")
    out, told = call("sweep", "--study", path, "--json")
    report = json.loads(out)
    why = "the server of launch 0 runs without the tuner's plugin"
    assert told.count(f"hot switching is off, every setting gets its own launch: {why}") == 1
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}") as store:
        study = store.study("small")
        trials, launches = store.trials(study.id), store.launches(study.id)
        # All that the next tuner has, were this one killed behind its first launch.
        assert read_switching(store, study.id, trials[:1], launches[:1]).plugin_missing == why
    assert report["budget"]["stopped"] == "exhausted"
    assert [x["steps"] for x in report["launches"]] == [[]] * 4
    assert {t["state"] for t in report["trials"]} == {"complete"}
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert report["hot_switch"]["gave_up"] == why
    shown, _ = call("show", "--study", "small")
    assert f"hot switch off, every setting got its own launch: {why}" in shown


def test_trees_of_one_topk_are_measured_in_one_launch(tuner, write_small, call):
    path = write_small(topk="[2]", protos="[null]", steps="[2, 3]")
    out, _ = call("sweep", "--study", path, "--json")
    report = json.loads(out)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert report["budget"]["stopped"] == "exhausted"
    # The default is a chain, which proves no tree.
    assert [x["draft_tokens"] for x in report["launches"]] == [[], [], [], [4, 8, 4]]
    assert report["launches"][-1]["steps"] == [2, 3, 3]
    (check,) = report["hot_switch"]["checks"]
    assert (check["algorithm"], check["topk"], check["faithful"]) == ("EAGLE3", 2, True)
    assert {t["state"] for t in report["trials"]} == {"complete"}
    for trial in report["trials"]:
        assert trial["resolved"]["speculation"] == trial["configuration"]["speculation"]
    assert report["hot_switch"]["launches_saved"] == 1
    alone, _ = call("sweep", "--study", path, "--name", "alone", "--no-hot-switch", "--json")
    own = {json.dumps(t["configuration"]): t["accept_length"] for t in json.loads(alone)["trials"]}
    assert own == {json.dumps(t["configuration"]): t["accept_length"] for t in report["trials"]}


def test_kill_9_in_a_switched_launch_loses_nothing_that_was_measured(tuner, write_small, call):
    path = write_small(protos="[null]", steps="{from: 1, to: 4}", time_scale=20, output_tokens=128)
    process = tuner.start("sweep", "--study", path, "--json")
    for line in process.stderr:
        if "trial 2" in line:  # the first that was switched to, behind the anchor
            break
    process.kill()
    process.communicate(timeout=60)
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}") as store:
        study = store.study("small")
        before = {t.number: t for t in store.trials(study.id) if t.state == "complete"}
        [left] = store.unfinished(study.id).launches
    assert set(before) >= {0, 1, 2}
    out, told = call("resume", "--study", "small", "--json")
    report = json.loads(out)
    assert report["budget"]["stopped"] == "exhausted"
    assert f"launch {left.id} was lost" in told
    deadline = time.monotonic() + 30
    while left.process is not None and psutil.pid_exists(left.process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}") as store:
        after = store.trials(store.study("small").id)
    for number, trial in before.items():
        assert after[number].measurements == trial.measurements
    # Its check was stored, and holds.
    [check] = report["hot_switch"]["checks"]
    assert (check["launch"], check["faithful"], check["clock"]) == (left.id, True, "plugin")
    rest = report["launches"][-1]
    assert report["baselines"]["default"] not in rest["trials"]
    assert report["hot_switch"]["states_s"] > 0
