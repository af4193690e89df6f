"""What of a study holds in another one that goes on from it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from results.records import Failure, TrialState
from results.studies import NewStudy
from runners.replay.runner import ReplayRunner
from search_spaces.rules.legality import canonical
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from tuner.studies.differences import machine_differences, study_differences
from tuner.studies.fork import inherit

from ..conftest import small_text
from ..replays import play, point, table
from ..studies.test_differences import H200

pytestmark = pytest.mark.slow

OOM = Failure("oom", "kv_cache", "configuration", "no room for the KV cache")


def measured(store, *, failures=None, **changes):
    """A study of which every point was judged, and what a fork is told of it."""
    study = parse_study(small_text(**changes), "old")
    broken = {point(study, steps, proto).key: f for (steps, proto), f in (failures or {}).items()}
    runner = ReplayRunner(table(study, failures=broken), study)
    play(study, store, runner, planner="exhaustive")
    stored = store.study("s")
    return study, store.trials(stored.id), store.launches(stored.id)


def fork(old, trials, launches, text, *, more=(), caller=None):
    study = parse_study(text, "new")
    return inherit(
        trials,
        launches,
        study=study,
        space=Space(study),
        baselines=baselines(study),
        differences=[*study_differences(old, study, simulated=False), *more],
        caller=caller or {},
    )


def test_everything_judged_holds_where_nothing_changed(store):
    old, trials, launches = measured(store)
    found = fork(old, trials, launches, small_text(launches=99))
    assert [(t.number, t.configuration, t.state) for t in found.trials] == [
        (t.number, t.configuration, t.state) for t in trials
    ]
    assert found.left == {}


def test_a_trial_without_a_verdict_is_left(store):
    old, trials, launches = measured(store)
    states = (TrialState.RUNNING, TrialState.FAILED, TrialState.INVALID, TrialState.INACTIVE)
    mixed = [replace(t, state=s) for t, s in zip(trials, states, strict=False)] + [*trials[4:]]
    found = fork(old, mixed, launches, small_text())
    assert [t.number for t in found.trials] == [t.number for t in trials[4:]]
    assert found.left == {f"{state}, without a result": 1 for state in states}


def test_points_of_a_smaller_space_and_its_baselines_hold(store):
    old, trials, launches = measured(store)
    text = small_text(steps="[2]", protos="[null]")
    found = fork(old, trials, launches, text)
    # none and 2 steps are points; 3 steps are SGLang's default and so a baseline.
    assert {t.configuration.speculation.num_steps for t in found.trials} == {None, 2, 3}
    assert len(found.trials) == 3
    assert found.left == {"not in the new search space or its baselines": len(trials) - 3}


def test_a_new_knob_finds_the_old_trials_at_not_set(store):
    old, trials, launches = measured(store)
    text = small_text().replace("{NCCL_PROTO:", "{OMP_NUM_THREADS: [null, 4], NCCL_PROTO:")
    found = fork(old, trials, launches, text)
    assert len(found.trials) == len(trials)
    assert {dict(t.configuration.env)["OMP_NUM_THREADS"] for t in found.trials} == {None}
    new = parse_study(text, "new")
    assert all(t.configuration in Space(new) for t in found.trials)
    assert all(canonical(t.configuration, new) == t.configuration for t in found.trials)

    # But not where their servers had it from the caller's environment.
    had = [replace(x, effective_environment=(("OMP_NUM_THREADS", "4"),)) for x in launches]
    found = fork(old, trials, had, text)
    assert found.trials == ()
    # What SGLang sets itself, it would set again.
    text = small_text().replace("{NCCL_PROTO:", '{NCCL_CUMEM_ENABLE: [null, "1"], NCCL_PROTO:')
    own = [replace(x, effective_environment=(("NCCL_CUMEM_ENABLE", "0"),)) for x in launches]
    assert len(fork(old, trials, own, text).trials) == len(trials)


def test_a_variable_that_is_no_longer_removed_must_not_come_from_the_caller(store):
    old, trials, launches = measured(store)
    text = small_text().replace('{NCCL_PROTO: [null, "LL,LL128,Simple"]}', "{}")
    found = fork(old, trials, launches, text)
    plain = [t for t in trials if dict(t.configuration.env)["NCCL_PROTO"] is None]
    assert [t.number for t in found.trials] == [t.number for t in plain]
    assert not fork(old, trials, launches, text, caller={"NCCL_PROTO": "LL"}).trials


@pytest.mark.parametrize(
    "change",
    [
        ("K2.5, draft", "K2, draft"),
        ("max-running-requests: 64", "max-running-requests: 48"),
        ("runner: simulated", "runner: sglang"),
    ],
)
def test_nothing_of_another_server_holds(store, change):
    old, trials, launches = measured(store)
    found = fork(old, trials, launches, small_text().replace(*change))
    assert found.trials == ()
    assert list(found.left.values()) == [len(trials)]


def test_an_address_or_key_makes_no_other_server(store):
    old, trials, launches = measured(store)
    text = small_text().replace("{tp-size: 8,", "{tp-size: 8, port: 8000, api-key: $K,")
    assert len(fork(old, trials, launches, text).trials) == len(trials)


@pytest.mark.parametrize("change", [{"sglang": "0.6.0"}, {"nccl": "9"}, {"gpus": ("B200",) * 2}])
def test_nothing_of_another_engine_or_gpu_holds(store, change):
    old, trials, launches = measured(store)
    more, _ = machine_differences(H200, replace(H200, **change))
    assert fork(old, trials, launches, small_text(), more=more).trials == ()


def test_under_another_load_only_what_could_not_start_holds(store):
    old, trials, launches = measured(store, failures={(3, "LL,LL128,Simple"): OOM})
    broken = [t for t in trials if t.state is TrialState.INFEASIBLE]
    assert [t.failure.kind for t in broken] == ["oom"]
    died = Failure("scheduler_died", "load", "configuration", "died of the load")
    loaded = replace(
        trials[-1], number=99, state=TrialState.INFEASIBLE, failure=died, measurements=()
    )
    found = fork(old, [*trials, loaded], launches, small_text(output_tokens=128))
    (kept,) = found.trials
    assert (kept.number, kept.state, kept.failure) == (broken[0].number, broken[0].state, OOM)
    assert found.left == {"measured under another workload": len(trials)}


def test_other_limits_judge_the_same_measurements_anew(store):
    old, trials, launches = measured(store)
    tight = small_text(limits="{ttft_p95_ms: 1}")
    found = fork(old, trials, launches, tight)
    assert {(t.state, t.failure.kind) for t in found.trials} == {
        (TrialState.INFEASIBLE, "constraint")
    }
    strict = parse_study(tight, "strict")
    judged = [
        replace(t, state=TrialState.INFEASIBLE, failure=found.trials[0].failure) for t in trials
    ]
    loose = fork(strict, judged, launches, small_text())
    assert {(t.state, t.failure) for t in loose.trials} == {(TrialState.COMPLETE, None)}


def test_what_holds_is_stored_as_the_new_study_spells_and_judges_it(store):
    old, trials, launches = measured(store)
    text = small_text(limits="{ttft_p95_ms: 1}").replace(
        "{NCCL_PROTO:", "{OMP_NUM_THREADS: [null, 4], NCCL_PROTO:"
    )
    found = fork(old, trials, launches, text)
    new = parse_study(text, "new")
    planned = NewStudy("f", text, new.digest, Space(new).digest, "replay", simulated=True)
    forked = store.fork(store.study("s").id, planned, found.trials)
    assert forked.forked_from == "s"
    stored = store.trials(forked.id)
    assert [t.configuration for t in stored] == [t.configuration for t in found.trials]
    assert {t.state for t in stored} == {TrialState.INFEASIBLE}
    assert {t.failure.kind for t in stored} == {"constraint"}
    assert [t.measurements for t in stored] == [t.measurements for t in trials]
    assert store.launches_spent(forked.id) == 0
    assert store.trials(store.study("s").id) == trials  # untouched


def test_of_two_trials_of_one_configuration_the_later_one_holds(store):
    old, trials, launches = measured(store)
    again = replace(trials[0], number=50)
    found = fork(old, [*trials, again], launches, small_text())
    assert len(found.trials) == len(trials)
    assert found.trials[-1].number == 50


# On the command line, with real simulated servers.


def report(out: str) -> dict:
    return json.loads(out)


def test_a_finished_study_is_extended_and_spends_only_what_is_new(call, write_small):
    path = write_small(steps="[1]", launches=1, protos='[null, "LL,LL128,Simple"]')
    first = report(call("sweep", "--study", path, "--json", "--seed", "5")[0])
    assert first["budget"]["stopped"] == "budget"
    assert first["forked_from"] is None

    out, told = call("resume", "--study", "small", "--fork", "more", "--launches", "1", "--json")
    "holds" if len(first["trials"]) == 1 else "hold"
    trials = len(first["trials"])
    assert f"reuses {trials} {'trial' if trials == 1 else 'trials'} from 1 launch of small" in told
    second = report(out)
    assert second["study"] == "more"
    assert second["forked_from"] == "small"
    assert second["seed"] == 5
    assert second["budget"] == second["budget"] | {"launches": 1, "launches_spent": 1}
    assert [x["imported_from"] for x in second["launches"]] == ["small#0", None]
    assert second["trials"][0] == first["trials"][0] | {"score": second["trials"][0]["score"]}
    assert second["launches"][0]["log"] == first["launches"][0]["log"]

    # A fork of a fork, with a file that has another space.
    write_small(steps="[1, 2]", launches=9, protos="[null]")
    out, _ = call("resume", "--study", "more", "--fork", "third", "--json")
    third = report(out)
    assert third["forked_from"] == "more"
    assert third["budget"]["launches"] == 1  # a name: the stored file and budget
    imported = [x["imported_from"] for x in third["launches"]]
    assert imported[:2] == ["more#0", "more#1"]

    out, told = call("resume", "--study", path, "--fork", "wide", "--json")
    assert 'space.env.NCCL_PROTO: was [null, "LL,LL128,Simple"], now [null]' in told
    last = report(out)
    assert last["forked_from"] == "small"  # the file's own name
    assert last["budget"]["launches"] == 9
    assert last["budget"]["stopped"] == "exhausted"
    steps = {t["configuration"]["speculation"].get("num_steps") for t in last["trials"]}
    assert steps == {None, 1, 2, 3}
    assert sum(x["imported_from"] is not None for x in last["launches"]) == 1

    # Nothing of the first study was changed.
    assert report(call("show", "--study", "small", "--json")[0]) == first
    _, taken = call("resume", "--study", "small", "--fork", "wide", code=2)
    assert "'wide' exists already" in taken


def test_a_changed_server_is_forked_without_anything(tuner, call, write_small):
    path = write_small(steps="[1]", launches=1, protos="[null]")
    call("sweep", "--study", path)
    file = tuner.folder / "small.yaml"
    file.write_text(file.read_text().replace("requests: 64", "requests: 48"))
    _, refused = call("resume", "--study", path, code=2)
    assert "server.flags.max-running-requests: was 64, now 48" in refused
    assert f"`tuner resume --study {path} --fork NEW`" in refused
    out, told = call("resume", "--study", path, "--fork", "new", "--json")
    assert "study new reuses no result of small" in told
    assert "1 measured with another server" in told
    assert [x["imported_from"] for x in report(out)["launches"]] == [None]


def test_who_does_not_believe_switched_figures_forks_without_them(call, write_small):
    path = write_small(steps="[1, 2, 3, 4]", protos="[null]")
    first = report(call("sweep", "--study", path, "--json")[0])
    switched = {x["id"] for x in first["launches"] if x["steps"]}
    alone = [t["number"] for t in first["trials"] if t["judged_in"] not in switched]
    assert 0 < len(alone) < len(first["trials"])
    _, refused = call("resume", "--study", path, "--no-hot-switch", code=2)
    assert "--fork NEW" in refused
    fork = ("resume", "--study", path, "--fork", "alone", "--no-hot-switch")
    out, told = call(*fork, "--launches", "2", "--json")
    assert f"{len(first['trials']) - len(alone)} measured after a hot switch" in told
    second = report(out)
    assert second["hot_switch"]["asked"] is False
    old = {x["id"] for x in second["launches"] if x["imported_from"] is not None}
    assert sum(t["judged_in"] in old for t in second["trials"]) == len(alone)
    assert not any(x["steps"] for x in second["launches"] if x["id"] not in old)
    assert second["budget"]["launches_spent"] == 2


def test_a_budget_is_of_forks_alone(call, write_small):
    path = write_small(steps="[1]", launches=1, protos="[null]")
    call("sweep", "--study", path)
    _, refused = call("resume", "--study", path, "--launches", "9", code=2)
    assert "--fork NEW" in refused
    assert "--fork 'a/b'" in call("resume", "--study", path, "--fork", "a/b", code=2)[1]
