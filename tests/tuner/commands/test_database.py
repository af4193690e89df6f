"""The main job on both databases, `tuner db` on what it stored, and optuna-dashboard beside it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import get_args

import httpx
import pytest

from results.database import address_without_password
from tuner.cli import app as cli
from tuner.commands.database import Kind

from ...conftest import Tuner
from ...quick_profile import write_quick_profile
from ..conftest import small_text

pytestmark = pytest.mark.slow

KINDS = ("sqlite", "postgres")


class Swept:
    """A study that was swept, and where it is stored."""

    def __init__(self, tuner: Tuner, storage: str) -> None:
        self.tuner = tuner
        self.storage = storage

    def run(self, *arguments: str, code: int = 0, storage: str | None = None) -> tuple[str, str]:
        return command(*arguments, "--storage", storage or self.storage, code=code)

    def json(self, *arguments: str, code: int = 0, storage: str | None = None) -> dict:
        return json.loads(self.run(*arguments, "--json", code=code, storage=storage)[0])


def command(*arguments: str, code: int = 0) -> tuple[str, str]:
    """What a command prints, in this process: to start one takes longer than most of them."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = cli.run(list(arguments))
    assert ended == code, f"exit {ended}\n{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue(), err.getvalue()


@pytest.fixture(scope="module", params=KINDS)
def swept(request, tmp_path_factory):
    """A sweep that was killed in its second launch, and resumed to its end."""
    folder = tmp_path_factory.mktemp(request.param)
    tuner = Tuner(folder)
    profile = write_quick_profile(folder)
    text = small_text(steps="[1, 2]", protos="[null]", profile=profile)
    (folder / "small.yaml").write_text(text)
    if request.param == "sqlite":
        yield sweep_and_resume(tuner, f"sqlite:///{folder}/tuner.db")
    else:
        with request.getfixturevalue("postgres").database() as address:
            yield sweep_and_resume(tuner, address)


def sweep_and_resume(tuner: Tuner, storage: str) -> Swept:
    process = tuner.start("sweep", "--study", "./small.yaml", "--storage", storage)
    for line in process.stderr:
        if "launch 1" in line:
            break
    process.kill()
    process.communicate()
    left = json.loads(command("db", "check", "--storage", storage, "--json", code=4)[0])
    assert [problem["kind"] for problem in left["problems"]] == ["launch_without_end"], left
    tuner.run("resume", "--study", "small", "--storage", storage)
    return Swept(tuner, storage)


def test_the_study_is_swept_resumed_and_shown(swept):
    report = swept.json("show")
    assert report["budget"]["stopped"] == "exhausted"
    assert report["budget"]["launches_spent"] == 3
    assert [trial["state"] for trial in report["trials"]] == ["complete"] * 4
    states = [launch["state"] for launch in report["launches"]]
    assert states == ["complete", "lost", "complete", "complete"]
    # The last one measures trial 1 again, as its anchor.
    assert [launch["trials"] for launch in report["launches"]] == [[0], [1], [1], [1, 2, 3]]
    steps = [t["configuration"]["speculation"].get("num_steps") for t in report["trials"]]
    assert steps == [None, 3, 1, 2]
    assert all(trial["resolved"] == trial["configuration"] for trial in report["trials"])
    assert report["baselines"] == {"none": 0, "default": 1, "production": None}


@pytest.fixture(scope="module")
def copied(swept, request, tmp_path_factory):
    """The same study in a database of the other kind."""
    with contextlib.ExitStack() as stack:
        if swept.storage.startswith("postgres"):
            address = f"sqlite:///{tmp_path_factory.mktemp('copied')}/copy.db"
        else:
            address = stack.enter_context(request.getfixturevalue("postgres").database())
        answer = swept.json("db", "copy", "--to", address)
        (study,) = answer["studies"]
        windows = study["measurements"]
        assert windows >= 5, "a busy machine repeats some"
        counts = {"measurements": windows, "requests": 4 * windows}
        assert study == {"name": "small", "launches": 4, "trials": 4, **counts, "optuna": True}
        yield address


def test_both_databases_give_the_same_answers(swept, copied):
    assert swept.json("show") == swept.json("show", storage=copied)
    shown = [swept.run("show", storage=storage)[0] for storage in (swept.storage, copied)]
    named = [
        f"--storage {shlex.quote(address_without_password(address))}`"
        for address in (swept.storage, copied)
    ]
    assert all(name in text for name, text in zip(named, shown, strict=True))
    assert shown[0].replace(named[0], named[1]) == shown[1]
    for number in range(4):
        trial = ("show", "--trial", str(number))
        assert swept.json(*trial) == swept.json(*trial, storage=copied)
    assert (
        swept.json("db", "list")["studies"] == swept.json("db", "list", storage=copied)["studies"]
    )
    assert swept.json("db", "check", storage=copied)["ok"]


def test_both_export_the_same_command(swept, copied):
    scripts = [
        swept.run("export", "--study", "small", storage=storage)[0]
        for storage in (swept.storage, copied)
    ]
    assert "launch_server" in scripts[0]
    assert without_dates(scripts[0]) == without_dates(scripts[1])


def without_dates(script: str) -> list[str]:
    return [line for line in script.splitlines() if "storage" not in line.lower()]


def test_optunas_view_is_copied_too(swept, copied):
    import optuna

    from results.optuna_mirror import close_storage, rdb_storage

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    views = []
    for storage in (swept.storage, copied):
        opened = rdb_storage(storage)
        study = optuna.load_study(study_name="small", storage=opened)
        views.append(
            [
                (
                    t.number,
                    t.state,
                    t.values,
                    t.params,
                    t.distributions,
                    t.user_attrs,
                    t.constraints,
                )
                for t in study.trials
            ]
        )
        assert study.user_attrs == {"tuner_study": "small"}
        close_storage(opened)
    assert views[0] == views[1]
    assert len(views[0]) == 4


def test_a_copy_is_never_mixed_into_a_study_of_its_name(swept, copied):
    _, refused = swept.run("db", "copy", "--to", copied, code=2)
    assert "has a study of this name: small" in refused
    _, itself = swept.run("db", "copy", "--to", swept.storage, code=2)
    assert "is the same database" in itself
    _, kept = swept.run("db", "copy", "--to", "sqlite://", code=2)
    assert "in-memory database" in kept


def test_the_list_tells_the_best(swept):
    (study,) = swept.json("db", "list")["studies"]
    report = swept.json("show")
    best = report["trials"][report["best"]["trial"]]
    assert study["best"]["trial"] == best["number"]
    assert study["best"]["score"] == best["score"]
    assert (study["state"], study["trials"], study["launches_spent"]) == ("exhausted", 4, 3)
    line = swept.run("db", "list")[0]
    assert line.startswith("small  exhausted   4 trials, 3 launches spent; best: trial ")
    assert line.endswith("(simulated)\n")


def test_a_backup_is_one_sound_file_that_can_be_used(swept, tmp_path):
    file = tmp_path / "kept" / "backup.db"
    file.parent.mkdir()
    answer = swept.json("db", "backup", str(file))
    assert answer["file"] == str(file)
    assert answer["studies"] == ["small"]
    assert answer["bytes"] == file.stat().st_size
    assert list(file.parent.iterdir()) == [file]
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT count(*) FROM trials").fetchone() == (4,)  # Optuna's
    assert swept.json("show", storage=f"sqlite:///{file}") == swept.json("show")
    before = file.read_bytes()
    again = swept.run("db", "backup", str(file), code=2)[1]
    assert "exists; choose another file" in again
    assert file.read_bytes() == before
    assert "cannot write" in swept.run("db", "backup", str(tmp_path / "no" / "b.db"), code=2)[1]


def test_a_backup_has_a_name_of_its_own(swept, monkeypatch):
    monkeypatch.chdir(swept.tuner.folder)
    answer = swept.json("db", "backup")
    file = Path(answer["file"])
    assert file.parent == swept.tuner.folder
    assert file.name.startswith("tuner-20")
    assert swept.json("db", "list", storage=f"sqlite:///{file}")["studies"][0]["name"] == "small"


@pytest.mark.parametrize("swept", ["postgres"], indirect=True)
def test_a_password_is_never_shown(swept, monkeypatch, capfd):
    monkeypatch.chdir(swept.tuner.folder)
    for arguments in (
        ["db", "list"],
        ["db", "check"],
        ["doctor"],
        ["db", "copy", "--to", swept.storage],
    ):
        cli.run([*arguments, "--storage", swept.storage])
        said = "".join(capfd.readouterr())
        assert said
        assert "p@ss" not in said
        assert "p%40ss" not in said


def test_logs_that_are_lost_or_changed_are_told(swept, tmp_path):
    logs = [Path(launch["log"]) for launch in swept.json("show")["launches"]]
    assert logs[0].exists()
    assert logs[2].exists()
    moved = tmp_path / "moved.log"
    shutil.move(logs[0], moved)
    with logs[2].open("a") as log:
        log.write("one line more\n")
    checked = swept.json("db", "check", code=4)
    assert [(p["kind"], p["study"]) for p in checked["problems"]] == [
        ("log_missing", "small"),
        ("log_changed", "small"),
    ]
    shutil.move(moved, logs[0])
    logs[2].write_bytes(logs[2].read_bytes().removesuffix(b"one line more\n"))
    assert swept.json("db", "check") == {**checked, "ok": True, "problems": []}


@pytest.fixture
def dashboard(swept):
    """optuna-dashboard as a process, on the database as it is."""
    from results.database import resolve_url

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = resolve_url(swept.storage).render_as_string(hide_password=False)
    process = subprocess.Popen(
        [
            Path(sys.executable).with_name("optuna-dashboard"),
            "--host", "127.0.0.1", "--port", str(port), address,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None
            assert time.monotonic() < deadline
            try:
                httpx.get(f"{url}/api/studies", timeout=60)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_optuna_dashboard_shows_the_study(swept, dashboard):
    (study,) = httpx.get(f"{dashboard}/api/studies", timeout=60).json()["study_summaries"]
    assert study["study_name"] == "small"
    assert study["directions"] == ["maximize"]
    shown = httpx.get(f"{dashboard}/api/studies/{study['study_id']}", timeout=60).json()
    report = swept.json("show")
    assert [trial["number"] for trial in shown["trials"]] == [0, 1, 2, 3]
    assert [trial["state"] for trial in shown["trials"]] == ["Complete"] * 4
    scores = [trial["score"] for trial in report["trials"]]
    assert [float(trial["values"][0]) for trial in shown["trials"]] == pytest.approx(scores)
    (best,) = shown["best_trials"]
    assert best["number"] == report["best"]["trial"]
    assert float(best["values"][0]) == pytest.approx(max(scores))


def test_a_backup_while_a_sweep_runs(tuner, write_small, tmp_path):
    # Its first launch takes longer than all of this.
    path = write_small(steps="[1, 2]", protos="[null]", time_scale=1)
    process = tuner.start("sweep", "--study", path)
    try:
        for line in process.stderr:
            if "launch 0" in line:
                break
        storage, kept, copy = (f"sqlite:///{tmp_path}/{name}.db" for name in ("tuner", "b", "c"))
        command("db", "backup", str(tmp_path / "b.db"), "--storage", storage)
        listed = json.loads(command("db", "list", "--storage", kept, "--json")[0])
        assert [(s["name"], s["state"]) for s in listed["studies"]] == [("small", "running")]
        _, said = command("db", "copy", "--to", copy, "--storage", storage)
        assert "is running" in said
        # Nobody may go on with a copy, and end the servers in it, while its tuner lives.
        for other in (kept, copy):
            _, said = command("resume", "--study", "small", "--storage", other, code=2)
            assert f"pid {process.pid} " in said
        assert json.loads(command("db", "check", "--storage", storage, "--json")[0])["ok"]
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(command("db", "check", "--storage", storage, "--json")[0])["ok"]
    left = json.loads(command("db", "check", "--storage", kept, "--json", code=4)[0])
    assert [problem["kind"] for problem in left["problems"]] == ["launch_without_end"]


def test_what_is_missing_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["list"], ["check"], ["backup"], ["copy", "--to", "sqlite:///x.db"]):
        _, said = command("db", *words, code=2)
        assert "there is no database at" in said
        assert "tuner sweep" in said
    assert list(tmp_path.iterdir()) == []


def test_damage_is_told(tmp_path):
    from results.store import Store
    from results.studies import NewStudy

    storage = f"sqlite:///{tmp_path}/tuner.db"
    with Store.open(storage) as store:
        store.create_study(NewStudy("kept", "study: kept\n", "d", "s", "simulated", True))
    with closing(sqlite3.connect(tmp_path / "tuner.db")) as database:
        database.execute("UPDATE tuner_studies SET text = 'no study'")
        database.execute(
            "INSERT INTO tuner_launch_trials (launch_id, trial_id, position) VALUES (7, 8, 0)"
        )
        database.commit()
    checked = json.loads(command("db", "check", "--json", "--storage", storage, code=4)[0])
    assert {problem["kind"] for problem in checked["problems"]} == {"damaged"}
    assert "refers to a row of tuner_" in checked["problems"][0]["message"]
    assert "restore a backup" in command("db", "check", "--storage", storage, code=4)[0]
    # A study file that this tuner does not understand is listed all the same.
    listed = json.loads(command("db", "list", "--json", "--storage", storage)[0])
    (study,) = listed["studies"]
    assert study["best"] is None
    assert study["unreadable"]


def documented_queries(kind: str) -> list[str]:
    document = (Path(__file__).parents[3] / "docs" / "database.md").read_text()
    blocks = re.findall(r"^```sql ?(\w*)\n(.+?)^```", document, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    return [query for which, query in blocks if which in {"", kind}]


def test_the_documented_queries_answer(swept, postgres):
    """In the programs that the document names, not through the tuner's own driver."""
    from sqlalchemy import make_url

    url = make_url(swept.storage)
    if url.get_backend_name() == "sqlite":
        answers = []
        with closing(sqlite3.connect(url.database)) as database:
            for query in documented_queries("sqlite"):
                cursor = database.execute(query)
                names = [column[0] for column in cursor.description]
                answers.append([dict(zip(names, row, strict=True)) for row in cursor])
    else:
        answers = []
        for query in documented_queries("postgresql"):
            done = subprocess.run(
                [postgres.bin / "psql", "--csv", "--no-psqlrc", "-h", postgres.folder,
                 "-U", url.username, "-d", url.database, "-c", query],
                capture_output=True,
                text=True,
                check=True,
                env={"PGPASSWORD": url.password},
            )  # fmt: skip
            answers.append(list(csv.DictReader(io.StringIO(done.stdout))))
    trials, ends, machines, slowest, loads = answers
    assert [row["state"] for row in trials] == ["complete"] * 4
    report = swept.json("show")
    fastest = sorted((t["output_tok_s"] for t in report["trials"]), reverse=True)
    assert [float(row["output_tok_s"]) for row in trials] == pytest.approx(fastest)
    assert [(row["name"], row["state"]) for row in ends] == [("small", "lost")]
    assert len(machines) == 4
    assert machines[0]["sglang_version"] == report["sglang_version"]
    assert len(slowest) == 10
    assert sum(int(row["windows"]) for row in loads) >= 5


def test_the_document_names_every_table_and_kind_of_problem():
    from results import tables
    from results.migrations import VERSION_TABLE

    document = (Path(__file__).parents[3] / "docs" / "database.md").read_text()
    for name in (*tables.metadata.tables, VERSION_TABLE):
        assert f"| `{name}` |" in document
    for kind in get_args(Kind):
        assert f"`{kind}`" in document


def test_optunas_tables_out_of_step_are_told(tmp_path):
    from results.optuna_mirror import MirrorTrial, OptunaMirror
    from results.records import LaunchIntent, LaunchState, Purpose, TrialState
    from results.store import Store
    from results.studies import NewStudy
    from search_spaces.configuration import Configuration, Speculation
    from tuner.commands.database import problems_of

    with Store.open(f"sqlite:///{tmp_path}/tuner.db") as store:
        study = store.create_study(NewStudy("kept", "study: kept\n", "d", "s", "simulated", True))
        configuration = Configuration.of(Speculation())
        planned = [(configuration, Purpose.SEARCH)] * 3
        store.add_launch(study.id, LaunchIntent(configuration, (), "mark", "log"), planned)
        for number in range(3):
            store.finish_trial(study.id, number, TrialState.INFEASIBLE)
        store.finish_launch(study.id, 0, LaunchState.INFEASIBLE)
        assert list(problems_of(store)) == []  # Optuna does not know the study

        def trial(number):
            return MirrorTrial(number, TrialState.INFEASIBLE, worst=0.0)

        with OptunaMirror(store.url, "kept") as mirror:
            mirror.sync([trial(0), MirrorTrial(1, TrialState.RUNNING)])
            (behind,) = problems_of(store)
            assert behind.kind == "mirror_behind"
            assert "trials 1, 2" in behind.message
            assert "tuner resume --study kept" in behind.advice
            store.stop_study(study.id, "exhausted", "all")
            assert "tuner show" in next(iter(problems_of(store))).advice
            mirror.sync([trial(n) for n in range(3)])
            assert list(problems_of(store)) == []
            mirror.sync([trial(n) for n in range(4)])
            (foreign,) = problems_of(store)
            assert (foreign.kind, foreign.study) == ("mirror_foreign", "kept")
