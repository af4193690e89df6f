"""One history, written into SQLite and PostgreSQL: every question has one answer."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from results.errors import StoreError
from results.queries import Questions
from results.records import (
    Failure,
    LaunchIntent,
    LaunchState,
    Machine,
    ProcessIdentity,
    Purpose,
    RequestSample,
    Resolved,
    TrialState,
)
from results.store import Store
from results.study_writer import Owner
from search_spaces.configuration import Setting

pytestmark = pytest.mark.slow

FAULTS = ("configuration", "host", "study", "client")
TEXTS = ("", "plain", "naïve \N{SNOWMAN} 語", "a\x00b", "'; --", "{x} %s %(y)s :z", "\\", "\ud800")
ENDS = [state for state in TrialState if state is not TrialState.RUNNING]
CLOSED = [state for state in LaunchState if state is not LaunchState.RUNNING]


class History:
    """Random operations, the same for every store: it remembers only what was asked for."""

    def __init__(self, seed: int, new_study, configuration, measurement) -> None:
        self.random = random.Random(seed)
        self.new_study = new_study
        self.configuration = configuration
        self.measurement = measurement
        self.marks = itertools.count()
        self.launches: dict[int, int] = {}
        self.trials: dict[int, int] = {}

    def operations(self, count):
        yield lambda store: store.create_study(self.new_study("s1", options={"a": [None, 1.5]}))
        self.launches[1] = self.trials[1] = 0
        kinds = (
            [self.create, self.claim, self.release, self.stop, self.work, self.fork]
            + 5 * [self.launch, self.process, self.ready, self.end]
            + 8 * [self.measure, self.judge]
        )
        for _ in range(count):
            kind = self.random.choice(kinds)
            if len(self.launches) > 3 and kind in {self.create, self.fork}:
                kind = self.measure  # few studies, in which much happens
            yield kind()

    def study(self):
        return self.random.choice(list(self.launches))

    def number(self, numbers, study):
        # One that does not exist, now and then.
        return self.random.randrange(max(1, numbers[study]) + (self.random.random() < 0.1))

    def text(self):
        return self.random.choice(TEXTS)

    def failure(self):
        if self.random.random() < 0.4:
            return None
        return Failure("cuda_oom", "load", self.random.choice(FAULTS), self.text())

    def create(self):
        study = len(self.launches) + 1
        self.launches[study] = self.trials[study] = 0
        new = self.new_study(f"s{study}", budget_hours=0.1, base_dir="/a b")
        return lambda store: store.create_study(new)

    def fork(self):
        source = self.study()
        study = len(self.launches) + 1
        # May fail: then the name stays free, and what follows finds no such study, in both.
        self.launches[study] = self.trials[study] = 2
        chosen = self.random.sample(range(self.trials[source] + 1), 1)
        return lambda store: store.fork(id_of(store, source), self.new_study(f"s{study}"), chosen)

    def claim(self):
        study, owner = self.study(), Owner(self.random.randint(1, 3), 1.0, "elsewhere")
        take_over = self.random.random() < 0.5
        return lambda store: store.claim(id_of(store, study), owner, take_over=take_over)

    def release(self):
        study, owner = self.study(), Owner(self.random.randint(1, 3), 1.0, "elsewhere")
        return lambda store: store.release(id_of(store, study), owner)

    def stop(self):
        study, reason = self.study(), self.text()
        return lambda store: store.stop_study(id_of(store, study), "budget", reason, 0.1)

    def work(self):
        study, seconds = self.study(), self.random.random()
        return lambda store: store.add_work(id_of(store, study), seconds)

    def launch(self):
        study = self.study()
        steps = [self.random.randint(1, 5) for _ in range(self.random.randint(0, 3))]
        planned = [(self.configuration(n), self.random.choice(list(Purpose))) for n in steps]
        if self.trials[study] and self.random.random() < 0.3:
            planned.insert(0, self.random.randrange(self.trials[study]))
        intent = LaunchIntent(
            self.configuration(steps[0] if steps else 1),
            tuple(Setting(n) for n in steps),
            f"mark-{next(self.marks)}",
            "log",
        )
        machine = Machine(host="box", gpus=("H200",) * 2) if self.random.random() < 0.5 else None
        self.launches[study] += 1
        self.trials[study] += len(steps)
        return lambda store: store.add_launch(id_of(store, study), intent, planned, machine)

    def process(self):
        study = self.study()
        launch = self.number(self.launches, study)
        process = ProcessIdentity(self.random.randint(1, 2**31 - 1), 1.8e9 + 0.01, "m", 3000, "box")
        return lambda store: store.set_process(
            id_of(store, study), launch, process, ("a",), (("X", None),)
        )

    def ready(self):
        study = self.study()
        launch = self.number(self.launches, study)
        phases = (("weights", self.random.random()), ("graphs", 1e-300))
        return lambda store: store.launch_ready(
            id_of(store, study), launch, 41.1, phases, "0.5.23", environment={"B": "1", "A": ""}
        )

    def end(self):
        study = self.study()
        launch, failure = self.number(self.launches, study), self.failure()
        state = self.random.choice(CLOSED)
        return lambda store: store.finish_launch(
            id_of(store, study), launch, state, 12.345678901234567, failure, log_digest="d"
        )

    def measure(self):
        study = self.study()
        trial, launch = self.number(self.trials, study), self.number(self.launches, study)
        value = self.random.choice([self.random.random() * 100, float("nan"), 1e15 / 3])
        samples = tuple(
            RequestSample(f"chat/{n}", -0.5, value, 0.1, 1, 2, error=None)
            for n in range(self.random.randint(0, 3))
        )
        measured = self.measurement(
            value, self.random.randint(1, 2), samples=samples, output_tokens=2**40
        )
        purpose = self.random.choice(list(Purpose))
        return lambda store: store.add_measurement(
            id_of(store, study), trial, launch, measured, purpose
        )

    def judge(self):
        study = self.study()
        trial, state, failure = (
            self.number(self.trials, study),
            self.random.choice(ENDS),
            self.failure(),
        )
        resolved = None
        if self.random.random() < 0.5:
            info = {"n": 2**70, "text": "\ud800", "deep": [{"x": None}], "f": 0.1}
            resolved = Resolved(self.configuration(2), "0.5.23", server_info=info)
        return lambda store: store.finish_trial(
            id_of(store, study), trial, state, resolved, failure
        )


def id_of(store, study):
    """PostgreSQL leaves gaps where a study was refused."""
    return {s.name: s.id for s in store.studies()}.get(f"s{study}", 999)


def outcome(operation, store):
    try:
        return without_times(operation(store))
    except StoreError as error:
        said = str(error).replace(store.shown, "DATABASE")
        return type(error), re.sub(r"study \d+|id \d+", "N", said)


def without_times(answer):
    """`repr`, in which NaN is equal to itself; and without what the clock or chance decides."""
    text = re.sub(r"created=[0-9.e+]+|StoredStudy\(id=\d+", "created=", repr(answer))
    return re.sub(r"mark='[0-9a-f]{32}'", "mark=", text)


def answers(store, studies):
    """Every question of `results.queries`, of every study and trial."""
    found = {"studies": store.studies()}
    for name in (f"s{study}" for study in studies):
        found["study", name] = outcome(lambda s, n=name: s.study(n), store)
        study = id_of(store, name[1:])
        found["owner", name] = store.owner(study)
        found["trials", name] = store.trials(study)
        found["samples", name] = store.trials(study, samples=True)
        found["launches", name] = store.launches(study)
        found["unfinished", name] = store.unfinished(study)
        found["launches_spent", name] = store.launches_spent(study)
        for number in range(len(found["trials", name]) + 1):
            key = name, number
            found["trial", key] = outcome(lambda s, k=(study, number): s.trial(*k), store)
            found["server_info", key] = store.server_info(study, number)
            found["measurements", key] = store.measurements(study, number, samples=True)
    return {key: without_times(answer) for key, answer in found.items()}


@pytest.fixture
def history(new_study, configuration, measurement):
    return lambda seed: History(seed, new_study, configuration, measurement)


@pytest.mark.parametrize("seed", range(3))
def test_every_question_has_one_answer(seed, sqlite_address, postgres_address, history):
    with Store.open(sqlite_address) as first, Store.open(postgres_address) as second:
        played = history(seed)
        refused = 0
        for operation in played.operations(120):
            one, other = outcome(operation, first), outcome(operation, second)
            assert one == other
            refused += isinstance(one, tuple)
        mine, theirs = answers(first, played.launches), answers(second, played.launches)
        assert mine == theirs
        # It was a history with something in it.
        assert len(first.studies()) > 1
        assert 5 < refused < 100
        assert sum("RequestSample" in a for key, a in mine.items() if key[0] == "samples") > 0


def test_every_question_is_asked():
    """A question that is added and not asked here would pass unseen."""
    asked = {
        "study", "studies", "owner", "trials", "trial", "server_info", "measurements", "launches",
        "unfinished", "launches_spent",
    }  # fmt: skip
    assert {name for name in vars(Questions) if not name.startswith("_")} == asked
