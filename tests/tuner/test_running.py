"""What is around the loop: the database, Optuna's tables, and who owns a study."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import optuna


def change(folder, *statements: str) -> None:
    """Changes the database behind the tuner's back."""
    with contextlib.closing(sqlite3.connect(folder / "tuner.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_sweep_with_everything_around_it_going_wrong(tuner, write_small):
    # Somebody else's study has the name in Optuna's tables: no reason not to sweep.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    foreign = optuna.create_study(
        storage=f"sqlite:///{tuner.folder / 'tuner.db'}", study_name="small"
    )
    foreign.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    study = write_small(launches=1)
    done = tuner.run("sweep", "--study", study, "--json")
    assert json.loads(done.stdout)["budget"]["stopped"] == "budget"
    assert "going on without Optuna's tables" in done.stderr
    assert len(foreign.trials) == 1

    # A tuner on a machine that is gone: only its user can know.
    change(
        tuner.folder,
        "UPDATE tuner_studies SET budget_launches = 2, stopped = NULL, owner_pid = 7, "
        "owner_started = 1.0, owner_host = 'gone'",
    )
    refused = tuner.run("resume", "--study", study, code=2)
    assert "look on gone" in refused.stderr
    assert "tuner resume --take-over" in refused.stderr

    # The database does not take a measurement: a fault, without a traceback, that resume mends.
    change(
        tuner.folder,
        "CREATE TRIGGER full BEFORE INSERT ON tuner_measurements "
        "BEGIN SELECT RAISE(ABORT, 'disk is full'); END",
    )
    fault = tuner.run("resume", "--study", study, "--take-over", code=4)
    assert "disk is full" in fault.stderr
    assert "then resume" in fault.stderr
    assert "Traceback" not in fault.stderr
    change(tuner.folder, "DROP TRIGGER full")
    report = json.loads(tuner.run("resume", "--study", study, "--json").stdout)
    assert report["budget"]["launches_spent"] == 2
    assert {t["state"] for t in report["trials"]} == {"complete"}
    assert [x["state"] for x in report["launches"]] == ["complete", "lost", "complete"]
