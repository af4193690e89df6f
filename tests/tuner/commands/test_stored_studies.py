"""What was measured is told, exported and copied, also where today's checks refuse its study."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from results.store import Store

pytestmark = pytest.mark.slow

DATABASES = Path(__file__).parents[2] / "data" / "databases"

STRICTER = {
    # A rule of SGLang that is kept to since, and one of the study file's.
    "rules": ("num_steps: [2], topk: [1]", "num_steps: [2], topk: [4], num_draft_tokens: [500]"),
    "relations": (", draft: lightseekorg/kimi-k2.5-eagle3", ""),
    # Words that are not known any more.
    "values": ("algorithm: EAGLE3,", "algorithm: EAGLE9, frobnicate: 1,"),
    "sections": ("workload: {prompts: {chat: 0.5, code: 0.5}", "workload: {prompts: {tales: -1}"),
}


@pytest.fixture(params=STRICTER)
def old(request, tmp_path):
    """A database of the first schema, with a study that would not be taken today."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript((DATABASES / "schema_0001.sql").read_text())
        (text,) = database.execute("SELECT text FROM tuner_studies WHERE name = 'old'").fetchone()
        before, after = STRICTER[request.param]
        assert before in text
        text = text.replace(before, after)
        database.execute(
            "UPDATE tuner_studies SET text = ?, digest = ? WHERE name = 'old'",
            (text, hashlib.sha256(text.encode()).hexdigest()),
        )
    (tmp_path / "old.yaml").write_text(text)
    return request.param, f"sqlite:///{path}"


def test_nothing_that_was_measured_is_lost(old, call, tmp_path):
    kind, storage = old
    at = ("--study", "old", "--storage", storage)
    out, told = call("show", *at, "--json")
    assert ("not understood" in told) == (kind in {"values", "sections"})
    shown = json.loads(out)
    then = json.loads((DATABASES / "schema_0001.json").read_text())["old"]["trials"]
    assert [t["output_tok_s"] for t in shown["trials"]] == [
        t["measurements"][0]["output_tok_s"] for t in then
    ]
    assert shown["best"] is not None
    # By the file that it was made of, as well.
    call("show", "--study", str(tmp_path / "old.yaml"), "--storage", storage, "--trial", "0")
    argv = json.loads(call("export", *at, "--format", "json")[0])["argv"]
    assert argv[argv.index("--max-running-requests") + 1] == "64"
    call("export", *at, "--format", "shell", "--trial", "0")
    call("export", *at, "--diff")

    (listed,) = json.loads(call("db", "list", "--storage", storage, "--json")[0])["studies"]
    assert listed["unreadable"] is None
    assert listed["best"]["trial"] == shown["best"]["trial"]
    copy = f"sqlite:///{tmp_path / 'copy.db'}"
    call("db", "copy", "--to", copy, "--storage", storage)
    with Store.open(copy) as store:
        assert len(store.trials(store.study("old").id)) == len(then)


@pytest.mark.parametrize("old", ["rules", "values"], indirect=True)
def test_it_goes_on_only_if_it_is_the_same_study(old, call, tmp_path):
    kind, storage = old
    Store.open(storage).close()
    with closing(sqlite3.connect(tmp_path / "old.db")) as database, database:
        database.execute("UPDATE tuner_studies SET stopped = NULL")
    _, told = call("resume", "--study", "old", "--storage", storage, code=2)
    if kind == "values":
        assert "does not understand its stored" in told
        assert "`tuner resume --study FILE --fork NEW " in told
    else:
        assert "derives a different search space" in told
    with Store.open(storage) as store:
        assert store.launches_spent(store.study("old").id) == 2


@pytest.mark.parametrize("old", ["rules"], indirect=True)
def test_what_was_never_judged_is_not_called_infeasible(old, call, tmp_path):
    Store.open(old[1]).close()
    with closing(sqlite3.connect(tmp_path / "old.db")) as database, database:
        database.execute("UPDATE tuner_trials SET state = 'running'")
    _, told = call("export", "--study", "old", "--storage", old[1], code=3)
    assert "nothing to export yet, because no trial has a result; " in told


def test_a_file_names_the_studies_that_were_made_of_it(call, tmp_path):
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript((DATABASES / "schema_0001.sql").read_text())
        database.execute("UPDATE tuner_studies SET name = 'monday' WHERE name = 'old'")
        (text,) = database.execute("SELECT text FROM tuner_studies").fetchone()
    (tmp_path / "old.yaml").write_text(text)
    at = ("--study", str(tmp_path / "old.yaml"), "--storage", f"sqlite:///{path}")
    _, told = call("show", *at, code=2)
    assert "no study named 'old'" in told
    assert "created from this file: monday. Use --study monday" in told
