"""A fork begins with what still holds of another study, and spends nothing for it."""

from __future__ import annotations

import dataclasses

import pytest

from results.errors import StoreError, StudyExists, StudyNotFound
from results.optuna_mirror import MirrorTrial, OptunaMirror
from results.records import (
    BatchCycles,
    CycleTimes,
    Failure,
    LaunchState,
    Machine,
    PartTime,
    ProcessIdentity,
    Purpose,
    RequestSample,
    TrialState,
)

OOM = Failure("cuda_oom", "kv_cache", "configuration", "not enough memory")
CYCLE = CycleTimes("plugin", (BatchCycles(2, PartTime(8, 0.2, 0.025, 0.03), {}),))
MACHINE = Machine(host="box", sglang="0.5.23", torch="2.9.1+cu128", nccl="2.27.5", gpus=("H200",))


@pytest.fixture
def source(store, new_study, intent, configuration, measurement, resolved):  # noqa: PLR0917
    """Launch 0 judged trials 0 and 1; 1 was lost with trial 2, which 2 judged; 3 runs trial 3."""
    study = store.create_study(new_study("source"))
    new = [(configuration(steps), Purpose.SEARCH) for steps in (1, 2, 3, 4)]
    store.add_launch(study.id, intent(1), new[:2], MACHINE)
    process = ProcessIdentity(4711, 1.8e9, "ignored", 30001, "box")
    store.set_process(study.id, 0, process, ("python", "-m"), (("NCCL_ALGO", None),))
    store.launch_ready(
        study.id, 0, 41.0, (("weights", 3.0),), "0.5.23", environment={"NCCL_CUMEM_ENABLE": "0"}
    )
    samples = tuple(RequestSample(f"chat/{n}", 0.5 * n, 0.1, 2.0, 100, 256) for n in range(3))
    for trial in (0, 1):
        for value in (80.0 + trial, 90.0 + trial):  # measured twice: the later one counts
            store.add_measurement(
                study.id,
                trial,
                0,
                measurement(value, samples=samples, cycle=CYCLE),
                Purpose.SEARCH,
            )
        store.finish_trial(study.id, trial, TrialState.COMPLETE, resolved(trial + 1))
    store.finish_launch(study.id, 0, LaunchState.COMPLETE, 70.0, log_digest="d0")
    store.add_launch(study.id, intent(3), new[2:3])
    store.add_measurement(study.id, 2, 1, measurement(1.0), Purpose.SEARCH)
    store.finish_launch(study.id, 1, LaunchState.LOST)
    store.add_launch(study.id, intent(3), [2])
    store.finish_trial(study.id, 2, TrialState.INFEASIBLE, failure=OOM)
    store.finish_launch(study.id, 2, LaunchState.INFEASIBLE, 9.0, OOM)
    store.add_launch(study.id, intent(4), new[3:])
    return study


def everything(store, study):
    return store.trials(study.id, samples=True), store.launches(study.id), store.owner(study.id)


def test_trials_are_renumbered_and_bring_their_launches(store, source, new_study):
    before = everything(store, source)
    fork = store.fork(source.id, new_study("fork", seed=7), [2, 1])
    assert everything(store, source) == before
    assert store.study("fork") == fork
    assert (fork.forked_from, fork.seed, fork.work_s) == ("source", 7, 0.0)
    assert store.owner(fork.id) is None

    old = store.trials(source.id, samples=True)
    trials = store.trials(fork.id, samples=True)
    assert trials == (
        dataclasses.replace(old[2], number=0, launches=(1, 2)),
        dataclasses.replace(old[1], number=1, launches=(0,)),
    )
    assert trials[1].measurements[0].output_tok_s == 91.0
    assert len(trials[1].measurements[0].samples) == 3
    assert trials[1].measurements[0].cycle == CYCLE
    assert store.server_info(fork.id, 1) == {"a": [1]}
    assert len(store.measurements(fork.id, 0)) == 1  # in the launch that was lost
    assert len(store.measurements(fork.id, 1)) == 2

    launches = store.launches(fork.id)
    assert [launch.imported_from for launch in launches] == ["source#0", "source#1", "source#2"]
    # Launch 0 judged two trials, and one of them came along.
    assert [launch.trials for launch in launches] == [(1,), (0,), (0,)]
    for mine, its in zip(launches, store.launches(source.id), strict=False):
        assert mine.intent.mark != its.intent.mark
        mark = mine.intent.mark
        process = its.process and dataclasses.replace(its.process, mark=mark)
        assert mine == dataclasses.replace(
            its,
            intent=dataclasses.replace(its.intent, mark=mark),
            process=process,
            trials=mine.trials,
            imported_from=mine.imported_from,
        )
    assert launches[0].machine == MACHINE
    assert launches[0].effective_environment == (("NCCL_CUMEM_ENABLE", "0"),)
    assert launches[0].log_digest == "d0"


def test_what_was_imported_is_not_spent(store, source, new_study, intent, configuration):
    assert store.launches_spent(source.id) == 2
    fork = store.fork(source.id, new_study("fork"), [0, 1, 2])
    assert store.launches_spent(fork.id) == 0
    launch = store.add_launch(fork.id, intent(5), [(configuration(5), Purpose.SEARCH)])
    assert (launch.id, launch.trials) == (3, (3,))
    store.finish_trial(fork.id, 3, TrialState.COMPLETE)
    store.finish_launch(fork.id, 3, LaunchState.COMPLETE)
    assert store.launches_spent(fork.id) == 1
    assert store.launches_spent(source.id) == 2


def test_a_launch_that_still_runs_is_lost_to_the_fork(
    store, source, new_study, intent, configuration
):
    store.add_launch(source.id, intent(4), [(configuration(5), Purpose.SEARCH)])
    store.finish_trial(source.id, 4, TrialState.COMPLETE)
    fork = store.fork(source.id, new_study("fork"), [4])
    assert [launch.state for launch in store.launches(fork.id)] == [LaunchState.LOST]
    assert store.unfinished(fork.id).launches == ()
    assert store.launches(source.id)[4].state is LaunchState.RUNNING


def test_a_fork_of_a_fork_names_the_study_before_it(store, source, new_study):
    first = store.fork(source.id, new_study("first"), [0])
    second = store.fork(first.id, new_study("second"), [0])
    assert second.forked_from == "first"
    assert [launch.imported_from for launch in store.launches(second.id)] == ["first#0"]


def test_a_fork_may_begin_with_nothing(store, source, new_study):
    fork = store.fork(source.id, new_study("fork"), [])
    assert store.trials(fork.id) == store.launches(fork.id) == ()
    assert fork.forked_from == "source"


@pytest.mark.parametrize(
    ("trials", "message"),
    [([0, 3], "trial 3 .* not finished"), ([0, 9], "no trial 9"), ([0, 0], "named twice")],
)
def test_what_cannot_be_imported_leaves_nothing(store, source, new_study, trials, message):
    with pytest.raises(StoreError, match=message):
        store.fork(source.id, new_study("fork"), trials)
    assert [study.name for study in store.studies()] == ["source"]


def test_a_taken_name_and_a_missing_source(store, source, new_study):
    with pytest.raises(StudyExists, match="already has a study named 'source'"):
        store.fork(source.id, new_study("source"), [0])
    with pytest.raises(StudyNotFound):
        store.fork(99, new_study("fork"), [])
    assert [study.name for study in store.studies()] == ["source"]


def test_the_source_may_be_gone_afterwards(store, source, new_study):
    from results import tables

    fork = store.fork(source.id, new_study("fork"), [0, 1])
    before = everything(store, fork)
    with store._writing() as connection:
        connection.execute(tables.studies.delete().where(tables.studies.c.name == "source"))
    assert everything(store, fork) == before


def test_optuna_takes_the_imported_trials_as_new_ones(store, source, new_study):
    import optuna

    fork = store.fork(source.id, new_study("fork"), [1, 0])
    mirror = OptunaMirror(optuna.storages.InMemoryStorage(), "fork")
    mirror.sync(
        [MirrorTrial(trial.number, trial.state, value=1.0) for trial in store.trials(fork.id)]
    )
    assert [trial.number for trial in mirror.study.trials] == [0, 1]
