"""Studies moved between databases: all of it or nothing, and nobody else's."""

from __future__ import annotations

import contextlib

import optuna
import pytest

from results.errors import MirrorConflict, StoreError, StudyExists
from results.optuna_mirror import MirrorTrial, OptunaMirror
from results.records import BatchCycles, CycleTimes, PartTime, Purpose, RequestSample, TrialState
from results.store import Store
from results.study_copy import Counts
from results.transfer import copy_studies

from .databases import optuna_storage, optuna_trials

pytestmark = pytest.mark.slow


@pytest.fixture
def stores(sqlite_address, postgres_address, tmp_path):
    """Two databases of different kinds, with something in the first."""
    with contextlib.ExitStack() as stack:
        yield (
            stack.enter_context(Store.open(f"sqlite:///{tmp_path}/source.db")),
            stack.enter_context(Store.open(postgres_address)),
        )


@pytest.fixture
def source(stores, new_study, intent, configuration, measurement):
    source, _ = stores
    for name in ("a", "b"):
        study = source.create_study(new_study(name))
        planned = [(configuration(n), Purpose.SEARCH) for n in (1, 2)]
        source.add_launch(study.id, intent(1), planned)
        samples = tuple(RequestSample(f"chat/{n}", 0.0, 0.1, 1.0, 9, 16) for n in range(3))
        cycle = CycleTimes("device_timer", (BatchCycles(0, PartTime(8, 0.2), {}),))
        window = measurement(9.0, samples=samples, cycle=cycle)
        source.add_measurement(study.id, 0, 0, window, Purpose.SEARCH)
        source.finish_trial(study.id, 0, TrialState.COMPLETE)
        with OptunaMirror(source.url, name) as mirror:
            mirror.sync([MirrorTrial(0, TrialState.COMPLETE, value=1.0)])
    return source


def contents(store):
    return [
        (study.name, store.trials(study.id, samples=True), store.launches(study.id))
        for study in store.studies()
    ]


def test_everything_arrives_beside_what_is_there(stores, source, new_study, intent):
    _, target = stores
    there = target.create_study(new_study("there"))
    target.add_launch(there.id, intent(1), [])
    source.claim(source.study("a").id)
    before = contents(target)
    copied = copy_studies(source, target)
    assert [(c.name, c.counts, c.mirrored) for c in copied] == [
        (name, Counts(1, 2, 1, 3), True) for name in ("a", "b")
    ]
    assert contents(target) == before + contents(source)
    assert target.owner(target.study("a").id) == source.owner(source.study("a").id)
    assert [t.values for t in optuna_trials(target.url, "b")] == [[1.0]]
    with pytest.raises(StudyExists, match=r"of this name: a, b"):
        copy_studies(source, target)
    # And back, into an empty one.
    with Store.open(source.url.replace("source.db", "back.db")) as back:
        copy_studies(target, back)
        assert contents(back) == contents(target)


def test_somebody_elses_optuna_study_is_left_alone(stores, source):
    _, target = stores
    with optuna_storage(target.url) as storage:
        optuna.create_study(storage=storage, study_name="b")
    with pytest.raises(MirrorConflict, match="did not create: b"):
        copy_studies(source, target)
    assert target.studies() == ()
    assert target.optuna_names() == {"b"}


def test_a_copy_that_was_cut_off_is_no_obstacle(stores, source):
    _, target = stores
    with OptunaMirror(target.url, "a") as mirror:  # of that copy; our rows were never committed
        mirror.sync([MirrorTrial(n, TrialState.RUNNING) for n in range(5)])
    copy_studies(source, target)
    assert [t.state.name for t in optuna_trials(target.url, "a")] == ["COMPLETE"]


def test_a_copy_that_fails_leaves_nothing(stores, source, intent, new_study):
    _, target = stores
    there = target.create_study(new_study("there"))
    mark = source.launches(source.study("b").id)[0].intent.mark
    with target._writing() as connection:
        from results import tables

        target_launch = {"study_id": there.id, "number": 0, "mark": mark, "state": "lost"}
        empty = {"configuration": {}, "settings": [], "log": "", "command": [], "environment": []}
        row = {**target_launch, **empty, "phases": [], "created": 0.0}
        connection.execute(tables.launches.insert(), row)
    with pytest.raises(StoreError, match="cannot write to the database"):
        copy_studies(source, target)
    assert [study.name for study in target.studies()] == ["there"]
    assert target.optuna_names() == frozenset()


def test_optuna_states_are_read_without_optuna(stores, source):
    assert source.optuna_states() == {"a": {0: "COMPLETE"}, "b": {0: "COMPLETE"}}
    assert stores[1].optuna_states() == {}
    copy_studies(*stores)
    assert stores[1].optuna_states() == source.optuna_states()
