"""`kill -9` at many instants of a study's life: nothing that was acknowledged is lost."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from sqlalchemy import make_url

from results.optuna_mirror import OptunaMirror
from results.records import LaunchState, TrialState
from results.store import Store
from results.studies import Unfinished

from .databases import optuna_trials

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("kill_scenario.py")
# Spread over the scenario (hundreds of statements and commits); neighbours, because the instants
# before and after a commit differ most; the last one is never reached.
POINTS = (0, 6, 45, 46, 133, 244, 303, 9999)
POINTS_OF = {"sqlite": POINTS, "postgres": POINTS[1::2]}


@pytest.fixture(scope="module")
def scenario():
    spec = importlib.util.spec_from_file_location("kill_scenario", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def killed(request, tmp_path_factory, scenario):
    """The folder with what was acknowledged, and the databases by point."""
    folder = tmp_path_factory.mktemp("killed")
    points = POINTS_OF[request.param]
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            addresses = {point: f"sqlite:///{folder}/{point}.db" for point in points}
            begin(scenario, f"sqlite:///{folder}/begun.db")
            for point in points:
                shutil.copy(folder / "begun.db", folder / f"{point}.db")
        else:
            postgres = request.getfixturevalue("postgres")
            begun = stack.enter_context(postgres.database(template="with_tables"))
            begin(scenario, begun)
            name = make_url(begun).database
            addresses = {
                point: stack.enter_context(postgres.database(template=name)) for point in points
            }
        answer = subprocess.run(
            [
                sys.executable,
                str(SCRIPT),
                str(folder),
                *(f"{point}={address}" for point, address in addresses.items()),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        signals = dict(map(int, line.split()) for line in answer.stdout.splitlines())
        assert signals == dict.fromkeys(points, signal.SIGKILL) | {9999: 0}
        yield folder, addresses


def begin(scenario, address):
    with Store.open(address) as store:
        scenario.begin(store)
        # Optuna's tables too, once for all of them.
        OptunaMirror(store.url, "kimi").close()


def seen(store):
    study = store.study("kimi")
    return (
        store.trials(1, samples=True),
        store.launches(1),
        (study.stopped, study.work_s, study.sglang_version),
    )


@pytest.fixture(scope="module")
def histories(scenario):
    """What the store says after each write of the scenario."""
    states = []
    with Store.open("sqlite://") as store:
        scenario.begin(store)
        mirror = OptunaMirror(optuna.storages.InMemoryStorage(), "kimi")
        states.append(seen(store))
        for write in scenario.writes():
            write(store, mirror)
            states.append(seen(store))
    return states


def test_nothing_acknowledged_is_lost_and_optuna_is_repaired(killed, histories, scenario):
    # One test: with one per point, every worker of a parallel run would play all of them.
    folder, addresses = killed
    for point, address in addresses.items():
        acknowledged = (folder / f"{point}.acknowledged").stat().st_size
        check(address, histories[acknowledged : acknowledged + 2], scenario)


def check(address, histories, scenario):
    with Store.open(address, create=False) as store:
        # All of the writes that were acknowledged, and of the next one all or nothing.
        assert seen(store) in histories, address
        store.claim(1)  # the dead owner is no obstacle

        with OptunaMirror(store.url, "kimi") as mirror:
            mirror.sync(scenario.mirror_trials(store))
        expected = {
            TrialState.RUNNING: optuna.trial.TrialState.RUNNING,
            TrialState.COMPLETE: optuna.trial.TrialState.COMPLETE,
            TrialState.INFEASIBLE: optuna.trial.TrialState.COMPLETE,
        }
        ours = store.trials(1)
        theirs = optuna_trials(address, "kimi")
        assert [(t.number, t.state) for t in theirs] == [
            (t.number, expected[t.state]) for t in ours
        ]
        for mine, its in zip(ours, theirs, strict=True):
            assert bool(its.constraints) == (mine.state is TrialState.INFEASIBLE)
            assert its.params == {"num_steps": mine.configuration.speculation.num_steps}
        resume(store, scenario)


def resume(store, scenario):
    """Ends what was cut off and judges its trials in another launch, under their own numbers."""
    left = store.unfinished(1)
    for launch in left.launches:
        store.finish_launch(1, launch.id, LaunchState.LOST)
    before = len(store.launches(1))
    intent = scenario.LaunchIntent(scenario.configuration(1), (), "resumed", "log")
    launch = store.add_launch(1, intent, [trial.number for trial in left.trials])
    assert launch.id == before
    for number in launch.trials:
        store.add_measurement(
            1, number, launch.id, scenario.measurement(80.0), scenario.Purpose.SEARCH
        )
        store.finish_trial(1, number, TrialState.COMPLETE)
    store.finish_launch(1, launch.id, LaunchState.COMPLETE, 1.0)
    assert store.unfinished(1) == Unfinished((), ())
    resumed = [trial for trial in store.trials(1) if trial.number in launch.trials]
    assert all([m.output_tok_s for m in trial.measurements] == [80.0] for trial in resumed)
    with OptunaMirror(store.url, "kimi") as mirror:
        mirror.sync(scenario.mirror_trials(store))
