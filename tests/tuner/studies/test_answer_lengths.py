"""Studies of versions whose answers were all equally long keep them; new ones vary them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from results.store import Store
from search_spaces.study_file.load import load_study, parse_study
from tuner.studies import assembly
from tuner.studies.differences import study_differences

from ..conftest import small_text

pytestmark = pytest.mark.slow

DATABASES = Path(__file__).parents[2] / "data" / "databases"
NOTE = "answers of equal length"


@pytest.fixture
def old(tuner):
    """A database of the third schema with an unfinished study, and that study's file."""
    path = tuner.folder / "old.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript((DATABASES / "schema_0003.sql").read_text())
        (text,) = database.execute("SELECT text FROM tuner_studies WHERE name = 'cut'").fetchone()
        database.execute("UPDATE tuner_studies SET owner_pid = NULL WHERE name = 'cut'")
        # Its servers ran on a machine whose versions are not this one's.
        database.execute("UPDATE tuner_launches SET machine = NULL")
    (tuner.folder / "cut.yaml").write_text(text.replace("study: old", "study: cut"))
    return f"sqlite:///{path}"


def fingerprints(storage, name):
    with Store.open(storage) as store:
        trials = store.trials(store.study(name).id)
        return {
            measurement.point.concurrency: measurement.workload_fingerprint
            for trial in trials
            for measurement in trial.measurements
        }


def options(storage, name):
    with Store.open(storage) as store:
        return store.study(name).options


def test_a_study_without_options_has_equal_answers_and_its_earlier_fingerprint(old):
    with Store.open(old) as store:
        stored = store.study("cut")
        study = assembly.stored_study_file(stored).study
        assert stored.options == {}
        assert (study.default_output_spread, study.to_workload().output_spread) == (0.0, 0.0)
        servers = assembly.make_servers("simulated", study, seed=stored.seed)
        now = {p.concurrency: servers.load_fingerprint(p) for p in study.to_workload().points}
    assert now == fingerprints(old, "cut")


def test_an_old_study_resumes_with_equal_answers_and_says_so(old, call):
    before = fingerprints(old, "cut")
    _, told = call("resume", "--study", "cut", "--storage", old)
    assert told.count(NOTE) == 1
    assert "output_tokens: {mean: 16, spread: 0.5}" in told
    assert fingerprints(old, "cut") == before
    with Store.open(old) as store:
        trials = store.trials(store.study("cut").id, samples=True)
        assert {
            sample.completion_tokens
            for trial in trials
            for measurement in trial.measurements
            for sample in measurement.samples
        } == {16}


class TestForks:
    def test_a_fork_keeps_equal_answers(self, old, call):
        out, told = call("resume", "--study", "old", "--fork", "new", "--storage", old, "--json")
        assert "changed: workload" not in told
        assert json.loads(out)["trials"]
        assert options(old, "new") == {"output_spread": 0.0}
        assert NOTE in told

    def test_a_stated_spread_is_another_workload(self, old, call, tuner):
        file = tuner.folder / "cut.yaml"
        text = file.read_text()
        assert text.count("output_tokens: 16,") == 1
        varied = "output_tokens: {mean: 16, spread: 0.5},"
        file.write_text(text.replace("output_tokens: 16,", varied))
        at = ("--study", "./cut.yaml", "--storage", old)
        _, refused = call("resume", *at, code=2)
        assert "workload.output_tokens.spread: was 0.0, now 0.5" in refused
        _, told = call("resume", *at, "--fork", "new", "--launches", "1")
        assert "changed: workload.output_tokens.spread: was 0.0, now 0.5" in told
        assert "reuses no result" in told
        assert NOTE not in told
        assert fingerprints(old, "new") != fingerprints(old, "cut")


class TestFilesOfAnOldStudy:
    """The file from which it was made is read with the defaults of that time."""

    @pytest.fixture
    def read(self, old, tuner):
        def differences(change):
            file = tuner.folder / "old.yaml"
            with Store.open(old) as store:
                stored = store.study("old")
            file.write_text(change(stored.text))
            mine = assembly.as_stored(stored, load_study(file))
            was = assembly.stored_study_file(stored).study
            return [d.message for d in study_differences(was, mine, simulated=True)]

        return differences

    def test_comments_change_nothing(self, read):
        assert read(lambda text: f"# measured on Monday\n{text}") == []

    def test_a_number_is_the_same_study(self, read):
        assert read(lambda text: text) == []
        equal = "output_tokens: {mean: 16, spread: 0}"
        assert read(lambda text: text.replace("output_tokens: 16", equal)) == []
        mean = "output_tokens: {mean: 16}"
        assert read(lambda text: text.replace("output_tokens: 16", mean)) == []

    def test_a_spread_is_another_workload(self, read):
        varied = "output_tokens: {mean: 16, spread: 0.5}"
        assert read(lambda text: text.replace("output_tokens: 16", varied)) == [
            "workload.output_tokens.spread: was 0.0, now 0.5"
        ]


def test_a_new_study_stores_and_uses_the_default_spread(tuner, call, write_small):
    path = write_small(launches=1, steps="[1]", protos="[null]", points="[{concurrency: 2}]")
    call("sweep", "--study", path, "--launches", "1")
    storage = f"sqlite:///{tuner.folder / 'tuner.db'}"
    assert options(storage, "small") == {"output_spread": 0.5}
    with Store.open(storage) as store:
        (measurement,) = store.trials(store.study("small").id, samples=True)[0].measurements
    lengths = sorted(sample.completion_tokens for sample in measurement.samples)
    assert lengths == [36, 44, 52, 60, 68, 76, 84, 92]


def test_resuming_a_new_study_finds_the_load_that_it_measured(tuner, call, write_small):
    path = write_small(launches=2, steps="[1]", protos="[null]", points="[{concurrency: 2}]")
    call("sweep", "--study", path, "--launches", "1")
    storage = f"sqlite:///{tuner.folder / 'tuner.db'}"
    with Store.open(storage) as store:
        stored = store.study("small")
        study = assembly.stored_study_file(stored).study
        servers = assembly.make_servers("simulated", study, seed=stored.seed)
        (point,) = study.to_workload().points
        assert servers.load_fingerprint(point) == fingerprints(storage, "small")[2]
        assert assembly.equal_lengths(study) is None


@pytest.mark.parametrize(
    ("points", "more", "noted"),
    [
        ("[{concurrency: 1}]", "", False),
        ("[{concurrency: 8}]", "", True),
        ("[{concurrency: 1}, {concurrency: 2}]", "", True),
        ("[{request_rate: 4}]", "", False),
        ("[{concurrency: 8}]", "natural_length: true", False),
    ],
)
def test_only_closed_loops_of_several_users_are_noted(points, more, noted):
    text = small_text(points=f"{points}\n  {more}")
    text = text.replace("maximize: output_tok_s", "minimize: e2e_p95_ms")
    study = parse_study(text, "small.yaml", output_spread=0.0)
    assert (assembly.equal_lengths(study) is not None) == noted
    assert assembly.equal_lengths(parse_study(text, "small.yaml")) is None
