from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import psutil
import pytest

from results.errors import StudyBusy, StudyExists, StudyNotFound
from results.study_writer import Owner

pytestmark = pytest.mark.slow


def test_a_study_comes_back_as_it_was_stored(store, new_study):
    new = new_study(
        seed=2**40,
        planner="tpe",
        hot_switch=True,
        budget_launches=24,
        budget_hours=6.5,
        options={"points": [{"concurrency": 1}], "gpu": None},
    )
    created = store.create_study(new)
    assert created == store.study("kimi")
    assert (created.seed, created.planner, created.hot_switch) == (2**40, "tpe", True)
    assert (created.budget_launches, created.budget_hours) == (24, 6.5)
    assert created.options == new.options
    assert (created.stopped, created.stop_reason, created.work_s) == (None, None, 0.0)
    assert created.sglang_version is None
    assert abs(created.created - time.time()) < 60


def test_a_name_is_given_once(store, new_study):
    first = store.create_study(new_study())
    with pytest.raises(StudyExists, match="already has a study named 'kimi'"):
        store.create_study(new_study(text="another"))
    assert store.studies() == (first,)


def test_studies_are_listed_in_order(store, new_study):
    for name in ("b", "a", "c"):
        store.create_study(new_study(name))
    assert [study.name for study in store.studies()] == ["b", "a", "c"]


def test_an_unknown_study_is_named(store):
    with pytest.raises(StudyNotFound, match="no study named 'qwen'"):
        store.study("qwen")


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.claim(7),
        lambda store: store.add_work(7, 1.0),
        lambda store: store.stop_study(7, "budget", "spent"),
    ],
)
def test_a_study_that_is_gone_is_not_written(store, write):
    with pytest.raises(StudyNotFound, match="no study with id 7"):
        write(store)


def test_work_adds_up_and_stops_are_taken_back(store, study):
    store.add_work(study.id, 1.5)
    store.stop_study(study.id, "interrupted", "Ctrl-C", work_s=2.0)
    stopped = store.study("kimi")
    assert (stopped.stopped, stopped.stop_reason, stopped.work_s) == ("interrupted", "Ctrl-C", 3.5)
    store.stop_study(study.id, None, None)
    taken_up = store.study("kimi")
    assert (taken_up.stopped, taken_up.stop_reason, taken_up.work_s) == (None, None, 3.5)


def _owner(process: psutil.Process) -> Owner:
    return Owner(process.pid, process.create_time(), socket.gethostname())


@pytest.fixture
def other_process():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.wait()
    child.stdin.close()


def test_a_living_owner_is_respected_and_a_dead_one_replaced(store, study, other_process):
    other = _owner(psutil.Process(other_process.pid))
    store.claim(study.id, other)
    with pytest.raises(StudyBusy, match=rf"pid {other.pid} on .*wait for it") as busy:
        store.claim(study.id)
    assert (busy.value.pid, busy.value.host) == (other.pid, other.host)

    other_process.kill()  # not waited for: a zombie does not own anything
    while psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.001)
    store.claim(study.id)
    with pytest.raises(StudyBusy, match=f"pid {os.getpid()} "):
        store.claim(study.id, Owner(1, psutil.Process(1).create_time(), socket.gethostname()))


def test_a_reused_pid_is_not_the_owner(store, study, other_process):
    alive = _owner(psutil.Process(other_process.pid))
    store.claim(study.id, Owner(alive.pid, alive.started - 3600, alive.host))
    store.claim(study.id)
    assert store.owner(study.id).is_same(Owner.this_process())


def test_claiming_twice_changes_nothing(store, study):
    store.claim(study.id)
    first = store.owner(study.id)
    store.claim(study.id)
    assert store.owner(study.id) == first


def test_only_the_owner_releases(store, study, other_process):
    other = _owner(psutil.Process(other_process.pid))
    store.claim(study.id, other)
    store.release(study.id)
    with pytest.raises(StudyBusy):
        store.claim(study.id)
    assert store.owner(study.id) == other
    store.release(study.id, other)
    assert store.owner(study.id) is None
    store.claim(study.id)
    assert store.owner(study.id).is_same(Owner.this_process())


def test_an_owner_elsewhere_is_taken_over_only_on_demand(store, study):
    store.claim(study.id, Owner(1, 1.0, "another-machine"))
    with pytest.raises(StudyBusy, match="check another-machine"):
        store.claim(study.id)
    store.claim(study.id, take_over=True)


def test_taking_over_does_not_reach_the_living_here(store, study, other_process):
    store.claim(study.id, _owner(psutil.Process(other_process.pid)))
    with pytest.raises(StudyBusy):
        store.claim(study.id, take_over=True)


CLAIM = """
import sys, time
from results.store import Store
from results.errors import StudyBusy
store = Store.open(sys.argv[1], create=False)
study = store.study("kimi")
print("ready", flush=True)
sys.stdin.readline()
try:
    store.claim(study.id)
except StudyBusy as busy:
    print("busy", busy.pid, flush=True)
else:
    print("mine", flush=True)
sys.stdin.readline()
"""


def test_of_two_processes_one_gets_the_study(lasting_address, new_study):
    from results.store import Store

    with Store.open(lasting_address) as store:
        store.create_study(new_study())
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, lasting_address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        answers = {child.pid: child.stdout.readline().split() for child in children}
        (winner,) = [pid for pid, answer in answers.items() if answer == ["mine"]]
        (refused,) = [answer for pid, answer in answers.items() if pid != winner]
        assert refused == ["busy", str(winner)]
    finally:
        for child in children:
            child.communicate("\n")
