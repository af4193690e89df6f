from __future__ import annotations

import dataclasses
import gc
import sqlite3
import subprocess
import sys
import threading
import warnings

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState as OptunaState
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from results.errors import MirrorConflict, StoreError
from results.optuna_mirror import (
    CONSTRAINT,
    MirrorParameter,
    MirrorTrial,
    OptunaMirror,
    SyncReport,
    distribution,
    optuna_at_work,
)
from results.records import TrialState
from results.store import Store

from .databases import connected, optuna_storage

pytestmark = pytest.mark.slow

STEPS = (1, 2, 3, 4, 5)
NCCL = (None, "LL,LL128,Simple", "LL128", "Simple")


@pytest.fixture(autouse=True)
def _quiet_optuna():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def point(number, state=TrialState.RUNNING, steps=1, nccl=None, **changes):
    return MirrorTrial(
        number,
        state,
        (
            MirrorParameter("num_steps", STEPS, steps, ordered=True),
            MirrorParameter("NCCL_PROTO", NCCL, nccl),
        ),
        **changes,
    )


ALL_STATES = (
    point(0, TrialState.COMPLETE, 1, None, value=1.0, user_attrs={"tok_s": 90.0}),
    point(1, TrialState.INFEASIBLE, 5, "LL128", worst=0.0),
    point(2, TrialState.INVALID, 4, "Simple", value=9.0),
    point(3, TrialState.FAILED, 3, None),
    point(4, TrialState.INACTIVE, 2, "Simple"),
    point(5, TrialState.COMPLETE, 2, "LL128", value=1.04),
    point(6, TrialState.RUNNING, 3, "LL128"),
)


@pytest.fixture(scope="module")
def optuna_template(postgres):
    """A database with Optuna's tables: to copy it is faster than to make them."""
    postgres.execute("CREATE DATABASE with_optuna TEMPLATE with_tables")
    with optuna_storage(postgres.address("with_optuna")):
        pass
    yield "with_optuna"
    postgres.execute("DROP DATABASE with_optuna WITH (FORCE)")


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def storage(request, sqlite_address):
    if request.param == "memory":
        yield optuna.storages.InMemoryStorage()
    elif request.param == "sqlite":
        Store.open(sqlite_address).close()
        yield sqlite_address
    else:
        postgres = request.getfixturevalue("postgres")
        template = request.getfixturevalue("optuna_template")
        with postgres.database(template=template) as address, optuna_storage(address) as opened:
            yield opened


def test_optuna_sees_states_values_and_constraints(storage):
    mirror = OptunaMirror(storage, "kimi")
    assert mirror.sync(ALL_STATES) == SyncReport(added=tuple(range(7)))
    study = optuna.load_study(study_name="kimi", storage=storage)
    trials = study.trials
    assert [trial.number for trial in trials] == list(range(7))
    assert [trial.state for trial in trials] == [
        OptunaState.COMPLETE,
        OptunaState.COMPLETE,
        OptunaState.FAIL,
        OptunaState.FAIL,
        OptunaState.FAIL,
        OptunaState.COMPLETE,
        OptunaState.RUNNING,
    ]
    assert [trial.value for trial in trials] == [1.0, 0.0, None, None, None, 1.04, None]
    assert [trial.constraints for trial in trials] == [{}, {CONSTRAINT: 1.0}, {}, {}, {}, {}, {}]
    assert trials[5].params == {"num_steps": 2, "NCCL_PROTO": "LL128"}
    assert trials[0].user_attrs == {"tok_s": 90.0, "tuner_state": "complete"}
    assert [trial.user_attrs.get("tuner_state") for trial in trials[1:5]] == [
        "infeasible",
        "invalid",
        "failed",
        "inactive",
    ]
    assert study.best_trial.number == 5
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE


def test_the_best_is_never_an_infeasible_one(storage):
    OptunaMirror(storage, "kimi").sync(
        [point(0, TrialState.INFEASIBLE, worst=5.0), point(1, TrialState.COMPLETE, 2, value=1.0)]
    )
    assert optuna.load_study(study_name="kimi", storage=storage).best_trial.number == 1


def test_syncing_again_changes_nothing(storage):
    OptunaMirror(storage, "kimi").sync(ALL_STATES)
    before = optuna.load_study(study_name="kimi", storage=storage).trials
    mirror = OptunaMirror(storage, "kimi")
    assert mirror.sync(ALL_STATES) == SyncReport()
    assert mirror.sync(ALL_STATES[3:5]) == SyncReport()
    assert optuna.load_study(study_name="kimi", storage=storage).trials == before


def test_trials_are_told_as_they_finish(storage):
    mirror = OptunaMirror(storage, "kimi")
    running = [dataclasses.replace(t, state=TrialState.RUNNING) for t in ALL_STATES]
    assert mirror.sync(running).added == tuple(range(7))
    assert {trial.state for trial in mirror.study.trials} == {OptunaState.RUNNING}
    assert mirror.sync(ALL_STATES) == SyncReport(told=(0, 1, 2, 3, 4, 5))
    other = OptunaMirror(optuna.storages.InMemoryStorage(), "kimi")
    other.sync(ALL_STATES)
    for told, added in zip(mirror.study.trials, other.study.trials, strict=True):
        assert told.state == added.state
        assert told.values == added.values
        assert told.constraints == added.constraints
        assert told.user_attrs == added.user_attrs
        assert told.params == added.params
        assert told.distributions == added.distributions


def test_a_kill_between_constraint_and_tell_is_repaired(storage):
    mirror = OptunaMirror(storage, "kimi")
    mirror.sync([point(0)])
    trial = optuna.trial.Trial(mirror.study, mirror.study.trials[0]._trial_id)
    trial.set_user_attr("tuner_state", "infeasible")
    trial.set_constraint(CONSTRAINT, 1.0)
    report = OptunaMirror(storage, "kimi").sync([point(0, TrialState.INFEASIBLE, worst=0.5)])
    assert report == SyncReport(told=(0,))
    (repaired,) = optuna.load_study(study_name="kimi", storage=storage).trials
    assert (repaired.state, repaired.value) == (OptunaState.COMPLETE, 0.5)
    assert repaired.constraints == {CONSTRAINT: 1.0}


def test_a_gap_is_filled_in_order(storage):
    OptunaMirror(storage, "kimi").sync(ALL_STATES[:2])
    assert OptunaMirror(storage, "kimi").sync(reversed(ALL_STATES)).added == (2, 3, 4, 5, 6)


def test_a_gap_that_cannot_be_filled_is_an_error(storage):
    mirror = OptunaMirror(storage, "kimi")
    with pytest.raises(MirrorConflict, match="next trial would be 0, not 2"):
        mirror.sync(ALL_STATES[2:])
    assert mirror.study.trials == []


def test_somebody_elses_study_is_left_alone(storage):
    study = optuna.create_study(storage=storage, study_name="kimi")
    study.add_trial(optuna.trial.create_trial(value=3.0))
    with pytest.raises(MirrorConflict, match="did not create"):
        OptunaMirror(storage, "kimi")
    assert optuna.load_study(study_name="kimi", storage=storage).user_attrs == {}


def test_a_trial_that_another_has_written_is_told(storage):
    mirror = OptunaMirror(storage, "kimi")
    mirror.sync(ALL_STATES)
    with pytest.raises(MirrorConflict, match="Optuna's trial 0 of study 'kimi'"):
        mirror.sync([point(0, TrialState.COMPLETE, 2, None, value=1.0)])


@pytest.mark.parametrize(
    "changed",
    [
        dataclasses.replace(ALL_STATES[0], value=2.0),
        dataclasses.replace(ALL_STATES[0], state=TrialState.FAILED),
        dataclasses.replace(ALL_STATES[0], state=TrialState.INFEASIBLE, worst=1.0),
    ],
)
def test_an_end_that_cannot_be_changed_is_reported(storage, changed):
    mirror = OptunaMirror(storage, "kimi")
    mirror.sync(ALL_STATES)
    before = mirror.study.trials
    assert mirror.sync([changed, *ALL_STATES[1:]]) == SyncReport(differing=(0,))
    assert mirror.study.trials == before


def test_the_worst_may_move(storage):
    mirror = OptunaMirror(storage, "kimi")
    mirror.sync(ALL_STATES)
    moved = dataclasses.replace(ALL_STATES[1], worst=-3.0)
    assert mirror.sync([ALL_STATES[0], moved, *ALL_STATES[2:]]) == SyncReport()


@pytest.mark.parametrize("value", [None, float("inf"), float("nan"), -float("inf")])
def test_values_are_finite(storage, value):
    mirror = OptunaMirror(storage, "kimi")
    with pytest.raises(ValueError, match="trial 0 is complete"):
        mirror.sync([point(0, TrialState.COMPLETE, value=value)])
    with pytest.raises(ValueError, match="trial 0 is infeasible"):
        mirror.sync([point(0, TrialState.INFEASIBLE, worst=value)])
    assert mirror.study.trials == []


def test_a_baseline_outside_the_space_has_no_parameters(storage):
    mirror = OptunaMirror(storage, "kimi")
    mirror.sync([point(0, TrialState.COMPLETE, 7, None, value=0.8), *ALL_STATES[1:]])
    assert mirror.study.trials[0].params == {}
    assert mirror.study.trials[1].params == {"num_steps": 5, "NCCL_PROTO": "LL128"}


def test_conditional_parameters_may_be_missing(storage):
    algorithms = MirrorParameter("algorithm", ("none", "EAGLE3"), "none")
    speculative = dataclasses.replace(algorithms, value="EAGLE3")
    mirror = OptunaMirror(storage, "kimi")
    mirror.sync(
        [
            MirrorTrial(0, TrialState.COMPLETE, (algorithms,), value=1.0),
            MirrorTrial(
                1, TrialState.COMPLETE, (speculative, *ALL_STATES[0].parameters), value=0.8
            ),
        ]
    )
    assert [set(trial.params) for trial in mirror.study.trials] == [
        {"algorithm"},
        {"algorithm", "num_steps", "NCCL_PROTO"},
    ]


@pytest.mark.parametrize(
    ("choices", "ordered", "expected"),
    [
        (STEPS, True, IntDistribution(1, 5)),
        ((2, 4, 8), True, CategoricalDistribution((2, 4, 8))),
        ((4, 8, 12), True, IntDistribution(4, 12, step=4)),
        ((8, 4, 12), True, IntDistribution(4, 12, step=4)),
        ((3,), True, IntDistribution(3, 3)),
        (STEPS, False, CategoricalDistribution(STEPS)),
        ((0.1, 0.2), True, CategoricalDistribution((0.1, 0.2))),
        ((None, 1, 2), True, CategoricalDistribution((None, 1, 2))),
        ((True, False), True, CategoricalDistribution((True, False))),
        ((None, "a", True, 2, 0.5), False, CategoricalDistribution((None, "a", True, 2, 0.5))),
    ],
)
def test_distributions(choices, ordered, expected):
    assert distribution(MirrorParameter("x", choices, choices[0], ordered)) == expected


def test_every_kind_of_choice_comes_back(storage):
    choices = (None, "a", True, 2, 0.5)
    mirror = OptunaMirror(storage, "kimi")
    mirror.sync(
        [
            MirrorTrial(n, TrialState.RUNNING, (MirrorParameter("x", choices, choice),))
            for n, choice in enumerate(choices)
        ]
    )
    read = optuna.load_study(study_name="kimi", storage=storage).trials
    assert [repr(trial.params["x"]) for trial in read] == [repr(choice) for choice in choices]


def test_choices_that_optuna_confuses_are_refused():
    with pytest.raises(ValueError, match="equal to Optuna"):
        distribution(MirrorParameter("x", (1, True), 1))


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_samplers_learn_from_it_and_can_be_asked(storage, sampler):
    mirror = OptunaMirror(storage, "kimi")
    trials = []
    for number in range(20):
        steps, nccl = STEPS[number % 5], NCCL[number % 4]
        if steps == 5:
            trials.append(point(number, TrialState.INFEASIBLE, steps, nccl, worst=0.0))
        else:
            value = 1.0 + 0.1 * (steps == 2)
            trials.append(point(number, TrialState.COMPLETE, steps, nccl, value=value))
    mirror.sync(trials)
    make = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=1, n_startup_trials=5),
        "random": lambda: optuna.samplers.RandomSampler(seed=1),
    }[sampler]
    # Asked on a study of its own, as a planner would: the mirror alone adds to the mirror.
    study = optuna.create_study(direction="maximize", sampler=make())
    study.add_trials(mirror.study.trials)
    asked = study.ask(
        {p.name: distribution(p) for p in trials[0].parameters},
    )
    assert asked.params["num_steps"] in STEPS
    assert asked.params["NCCL_PROTO"] in NCCL
    # And in place, where the storage is the database.
    loaded = optuna.load_study(study_name="kimi", storage=storage, sampler=make())
    assert set(loaded.ask({p.name: distribution(p) for p in trials[0].parameters}).params) == {
        "num_steps",
        "NCCL_PROTO",
    }


def test_optuna_is_silenced_only_inside(storage, capfd):
    optuna.logging.set_verbosity(optuna.logging.INFO)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        OptunaMirror(storage, "kimi").sync(ALL_STATES)
        OptunaMirror(storage, "kimi").sync(ALL_STATES)
    assert caught == []
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == optuna.logging.INFO


def test_a_dashboard_beside_us_locks_nobody_out(
    lasting_address, new_study, intent, configuration, measurement
):
    """Our engine and Optuna's in one process, and a third that reads and writes all the time."""
    from results.records import Purpose

    with Store.open(lasting_address) as store, OptunaMirror(store.url, "kimi") as mirror:
        study = store.create_study(new_study())
        errors, rounds, stop = [], [], threading.Event()

        def dashboard():
            try:
                with optuna_storage(lasting_address) as storage:
                    other = optuna.load_study(study_name="kimi", storage=storage)
                    while not stop.is_set():
                        other.get_trials(deepcopy=False)
                        other.set_user_attr("note", len(rounds))
                        rounds.append(True)
            except Exception as error:  # noqa: BLE001 - told to the test
                errors.append(error)

        thread = threading.Thread(target=dashboard)
        thread.start()
        try:
            number = 0
            # Until both have met often enough.
            while number < 20 or (len(rounds) < 20 and not errors):
                store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH)])
                mirror.sync([point(number)])
                store.add_measurement(study.id, number, number, measurement(9.0), Purpose.SEARCH)
                store.finish_trial(study.id, number, TrialState.COMPLETE)
                mirror.sync([point(number, TrialState.COMPLETE, value=1.0)])
                number += 1
        finally:
            stop.set()
            thread.join()
        assert errors == []
        assert len(rounds) >= 20
        assert len(mirror.study.trials) == len(store.trials(study.id)) == number


def test_closing_lets_go_and_leaves_a_given_storage_alone(sqlite_address):
    with OptunaMirror(sqlite_address, "kimi") as mirror:
        mirror.sync(ALL_STATES)
    mirror.close()
    with OptunaMirror(sqlite_address, "kimi") as again:
        assert again.sync(ALL_STATES) == SyncReport()
    storage = optuna.storages.InMemoryStorage()
    with OptunaMirror(storage, "kimi") as mirror:
        mirror.sync(ALL_STATES)
    assert len(optuna.load_study(study_name="kimi", storage=storage).trials) == 7


# Optuna 5.0.0 leaves the connections of a storage that it refuses to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tables_of_another_optuna_are_a_store_error(lasting_address):
    OptunaMirror(lasting_address, "kimi").close()
    with connected(lasting_address) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'v99.0.0.a'"))
    with pytest.raises(StoreError, match=r"Optuna's tables cannot be used: .*optuna version"):
        OptunaMirror(lasting_address, "kimi")
    gc.collect()


def test_first_sweeps_started_together_all_get_their_tables(new_address):
    code = (
        "import sys; from results.optuna_mirror import OptunaMirror;"
        "OptunaMirror(sys.argv[1], sys.argv[2]).close()"
    )
    starting = [
        subprocess.Popen(
            [sys.executable, "-c", code, new_address, name], stderr=subprocess.PIPE, text=True
        )
        for name in ("a", "b", "c")
    ]
    for process in starting:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    with optuna_storage(new_address) as storage:
        assert sorted(optuna.get_all_study_names(storage)) == ["a", "b", "c"]


def test_what_the_database_said_is_told_and_not_optunas_advice():
    full = sqlite3.OperationalError("database or disk is full")
    wrapped = optuna.exceptions.StorageInternalError("This typically happens due to anything")
    wrapped.__cause__ = OperationalError("INSERT", {}, full)
    with pytest.raises(StoreError) as caught, optuna_at_work():
        raise wrapped
    assert str(caught.value) == "Optuna's tables cannot be used: database or disk is full"
