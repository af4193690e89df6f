"""What is around the loop: the database, Optuna's tables, and who owns a study."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import time

import optuna
import pytest

from results.store import Store

pytestmark = pytest.mark.slow


def change(folder, *statements: str) -> None:
    """Changes the database behind the tuner's back."""
    with contextlib.closing(sqlite3.connect(folder / "tuner.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_sweep_with_everything_around_it_going_wrong(tuner, write_small, call):
    # Somebody else's study has the name in Optuna's tables: no reason not to sweep.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    foreign = optuna.create_study(
        storage=f"sqlite:///{tuner.folder / 'tuner.db'}", study_name="small"
    )
    foreign.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    study = write_small(launches=1)
    out, err = call("sweep", "--study", study, "--json")
    assert json.loads(out)["budget"]["stopped"] == "budget"
    assert "continuing without Optuna's tables" in err
    assert len(foreign.trials) == 1

    # A tuner on a machine that is gone: only its user can know.
    change(
        tuner.folder,
        "UPDATE tuner_studies SET budget_launches = 2, stopped = NULL, owner_pid = 7, "
        "owner_started = 1.0, owner_host = 'gone'",
    )
    _, refused = call("resume", "--study", study, code=2)
    assert "check gone" in refused
    assert "tuner resume --take-over" in refused

    # The database does not take a measurement: a fault, without a traceback, that resume mends.
    change(
        tuner.folder,
        "CREATE TRIGGER full BEFORE INSERT ON tuner_measurements "
        "BEGIN SELECT RAISE(ABORT, 'disk is full'); END",
    )
    _, fault = call("resume", "--study", study, "--take-over", code=4)
    assert "disk is full" in fault
    assert "then resume" in fault
    assert "Traceback" not in fault
    change(tuner.folder, "DROP TRIGGER full")
    report = json.loads(call("resume", "--study", study, "--json")[0])
    assert report["budget"]["launches_spent"] == 2
    assert {t["state"] for t in report["trials"]} == {"complete"}
    assert [x["state"] for x in report["launches"]] == ["complete", "lost", "complete"]


def test_a_database_that_is_removed_under_a_sweep_is_told(tuner, write_small):
    process = tuner.start("sweep", "--study", write_small(), "--storage", "sqlite:///del.db")
    for line in process.stderr:
        if "launch 0" in line:
            break
    for file in tuner.folder.glob("del.db*"):
        file.unlink()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 4
    assert "del.db was removed or replaced" in err
    assert "Traceback" not in err


def test_what_is_exported_of_a_trial_that_did_not_run_says_so(write_small, call):
    study = write_small(limits="{ttft_p95_ms: 1}", steps="[1]", protos="[null]", launches=1)
    call("sweep", "--study", study, code=3)
    out, said = call("export", "--study", "small", "--trial", "0")
    assert "# DO NOT USE IN PRODUCTION: the trial is infeasible: ttft_p95_ms" in out
    assert "Verdict" not in out
    assert "warning: trial 0 is infeasible" in said


def test_a_signal_before_the_first_launch_is_told_and_stored(tuner, write_small):
    process = tuner.start("sweep", "--study", write_small(steps="[1]", protos="[null]"), "--json")
    deadline = time.monotonic() + 30
    while not (tuner.folder / "tuner.db").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.15)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in {130, -2}
    assert "Traceback" not in err
    shown = tuner.start("show", "--study", "small", "--json")
    stored, _ = shown.communicate(timeout=60)
    if out:  # the study had been claimed: the report says how it ended
        assert json.loads(out)["budget"]["stopped"] == "interrupted"
        assert json.loads(stored)["budget"]["stopped"] == "interrupted"
    done = tuner.run("resume", "--study", "small", "--json") if shown.returncode == 0 else None
    assert done is None or json.loads(done.stdout)["budget"]["stopped"] == "exhausted"


def test_the_only_study_need_not_be_named(write_small, call):
    study = write_small(steps="[1]", protos="[null]", launches=1)
    call("sweep", "--study", study)
    assert json.loads(call("show", "--json")[0])["study"] == "small"
    assert "exec" in call("export")[0]
    call("sweep", "--study", study, "--name", "other")
    for command in ("show", "export"):
        _, several = call(command, code=2)
        assert "choose one with --study: small, other" in several
        assert "small" in several
        assert "other" in several


def test_a_database_without_a_study_says_so(tuner, call):
    Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}").close()
    assert "create one with `tuner sweep`" in call("show", code=2)[1]
