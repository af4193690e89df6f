"""`tuner resume` through the command line: what it refuses, what it goes on with, who waits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
import time
from typing import TYPE_CHECKING

import pytest

from results.store import Store
from runners.process.gpu_locks import FOLDER_VARIABLE, DeviceLocks

from ...quick_profile import write_quick_profile

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.slow

ONE = {"steps": "[1]", "protos": "[null]", "launches": 1}


def change(folder, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "tuner.db")) as connection, connection:
        connection.execute(statement)


def edit(file, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def until(happened, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.fixture
def unfinished(tuner, call, write_small):
    """A study with one launch behind it and others to come, on a profile of its own."""
    path = write_small(**ONE | {"launches": 2}, profile=write_quick_profile(tuner.folder))
    call("sweep", "--study", path, "--launches", "1")
    reopen(tuner.folder)
    return path


def reopen(folder) -> None:
    """As if the tuner had been killed after its launch, with two more to go."""
    change(folder, "UPDATE tuner_studies SET stopped = NULL, budget_launches = 3")


def launches(tuner) -> int:
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}") as store:
        return len(store.launches(store.study("small").id))


def test_another_engine_or_gpu_is_refused_and_forked_without_figures(tuner, call, unfinished):
    engine = ("name: kimi\n", "name: kimi\nsglang: 0.5.17\n")
    gpus = ("6000 Blackwell", "5000 Blackwell")
    edit(tuner.folder / "kimi-quick.yaml", *engine)
    edit(tuner.folder / "kimi-quick.yaml", *gpus)
    _, refused = call("resume", "--study", "small", code=2)
    assert "study small cannot continue" in refused
    assert "\n  SGLang: measured with 0.5.23, now 0.5.17\n" in refused
    assert (
        "\n  GPUs: measured with 8 x NVIDIA RTX PRO 6000 Blackwell, now 8 x NVIDIA RTX PRO 5000 "
        "Blackwell" in refused
    )
    assert "`tuner resume --study small --fork NEW`" in refused
    assert launches(tuner) == 1  # nothing was started

    out, forked = call(
        *("resume", "--study", "small", "--fork", "new", "--json", "--launches", "1")
    )
    assert "study new reuses no result of small" in forked
    assert "1 measured with another engine and set of GPUs" in forked
    report = json.loads(out)
    assert [x["imported_from"] for x in report["launches"]] == [None]
    assert report["sglang_version"] == report["machine"]["sglang"] == "0.5.17"

    edit(tuner.folder / "kimi-quick.yaml", *reversed(engine))
    edit(tuner.folder / "kimi-quick.yaml", *reversed(gpus))
    call("resume", "--study", "small")
    assert launches(tuner) == 3


def test_a_changed_file_is_refused_line_by_line_or_taken_for_what_it_is(tuner, call, unfinished):
    file = tuner.folder / "small.yaml"
    stored = file.read_text()
    edit(file, "num_steps: [1]", "num_steps: [1, 2]")
    edit(file, "output_tokens: 64", "output_tokens: 32")
    edit(file, "launches: 2", "launches: 7")
    _, refused = call("resume", "--study", unfinished, code=2)
    assert "  space.speculation[1].num_steps: was [1], now [1, 2]\n" in refused
    assert "  workload.output_tokens.mean: was 64, now 32\n" in refused
    assert "budget" not in refused  # no reason
    assert launches(tuner) == 1

    file.write_text(f"# tuned on Monday\n{stored.replace('launches: 2', 'launches: 7')}")
    out, told = call("resume", "--study", unfinished, "--json")
    assert "note: budget.launches: was 2, now 7" in told
    assert f"`tuner resume --study {unfinished} --fork NEW`" in told
    assert json.loads(out)["budget"]["launches"] == 3

    file.write_text(f"{stored}\n# a last word\n")
    _, told = call("resume", "--study", unfinished)
    assert "is finished" in told
    assert "only in comments or formatting" in told


def test_prompts_that_changed_on_disk_are_seen_before_a_launch(tuner, call, write_small):
    prompts = tuner.folder / "mine.jsonl"
    questions = "\n".join(json.dumps({"prompt": f"Question {n}?"}) for n in range(20))
    prompts.write_text(questions)
    path = write_small(**ONE | {"launches": 2})
    edit(tuner.folder / "small.yaml", "{chat: 0.5, code: 0.5}", "{'jsonl:mine.jsonl': 1}")
    call("sweep", "--study", path, "--launches", "1")
    reopen(tuner.folder)
    prompts.write_text(questions.replace("Question", "Frage"))
    _, refused = call("resume", "--study", "small", code=2)
    assert "workload: the prompts at concurrency 1 differ from those of trial 0" in refused
    assert launches(tuner) == 1
    _, forked = call("resume", "--study", "small", "--fork", "new", "--launches", "1")
    assert "1 measured under another workload" in forked
    prompts.write_text(questions)
    call("resume", "--study", "small")
    assert launches(tuner) == 3


def test_kill_9_in_a_launch_counts_its_work_towards_the_hours(tuner, call, write_small):
    path = write_small(**ONE | {"launches": 2}, requests=300, time_scale=20)
    process = tuner.start("sweep", "--study", path)

    def measuring() -> bool:
        with contextlib.suppress(sqlite3.Error, TypeError):
            database = sqlite3.connect(tuner.folder / "tuner.db")
            with contextlib.closing(database) as connection:
                (ready,) = connection.execute("SELECT ready_s FROM tuner_launches").fetchone()
                return ready is not None
        return False

    until(measuring, process)
    process.kill()
    process.communicate()
    change(tuner.folder, "UPDATE tuner_studies SET budget_hours = 0.000001")
    # The launch that was killed has spent the hours by itself: nothing more is launched.
    out, err = call("resume", "--study", "small", "--json")
    report = json.loads(out)
    assert "launch 0 was lost because the tuner was killed; stopped 1 process" in err
    assert report["budget"]["stopped"] == "budget"
    (lost,) = report["launches"]
    assert lost["state"] == "lost"
    assert len(lost["log_digest"]) == 64
    # From its birth to the last line of its log, which it wrote once it served.
    assert report["budget"]["work_s"] > lost["ready_s"] / 2


@pytest.fixture
def busy(tuner, write_small):
    """A tuner at work on a study that takes long."""
    path = write_small(**ONE | {"launches": 2}, requests=300, time_scale=1)
    process = tuner.start("sweep", "--study", path)

    def at_work() -> bool:
        database = tuner.folder / "tuner.db"
        if not database.exists():
            return False
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(database)) as c:
            return bool(c.execute("SELECT count(*) FROM tuner_launches").fetchone()[0])
        return False

    until(at_work, process)
    yield process
    process.kill()
    process.communicate()


def test_a_second_tuner_on_a_study_is_refused_or_waits(tuner, call, busy):
    _, refused = call("resume", "--study", "small", code=2)
    assert f"another tuner (pid {busy.pid} on " in refused
    assert "use --wait" in refused
    waiting = tuner.start("resume", "--study", "small", "--wait")
    assert waiting.stderr.readline() == (f"waiting for the tuner with pid {busy.pid}\n")
    assert waiting.poll() is None
    busy.kill()
    line = waiting.stderr.readline()
    while line and "was lost because the tuner was killed" not in line:
        line = waiting.stderr.readline()
    assert line, "it never got the study"
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=120)
    assert waiting.returncode == 130
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}") as store:
        assert store.owner(1) is None
        assert {x.state.value for x in store.launches(1)} == {"lost"}


# Real servers: a Python that has SGLang's metadata, but nothing that would start.


@pytest.fixture
def real(tuner, write_small, monkeypatch):
    info = tuner.folder / "site" / "sglang-0.5.23.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n")
    tuner.env["PYTHONPATH"] += os.pathsep + str(tuner.folder / "site")
    tuner.env["TUNER_SGLANG_PYTHON"] = sys.executable
    tuner.env[FOLDER_VARIABLE] = str(tuner.folder / "locks")
    for name in ("PYTHONPATH", "TUNER_SGLANG_PYTHON", FOLDER_VARIABLE):
        monkeypatch.setenv(name, tuner.env[name])
    path = write_small(**ONE)
    edit(tuner.folder / "small.yaml", "{tp-size: 8,", "{tp-size: 8, device: cpu,")
    return (path, "--runner", "sglang")


def test_a_second_tuner_on_the_same_devices_is_refused_or_waits(tuner, call, real):
    with DeviceLocks(["cpu"], "somebody"):
        _, refused = call("sweep", "--study", *real, code=2)
        assert f"cpu is in use by a tuner (pid {os.getpid()}, study somebody, since" in refused
        assert "--wait" in refused
        # Nothing was stored: the same command is no resume later.
        assert "stored studies: none" in call("resume", "--study", "small", code=2)[1]
        waiting = tuner.start("sweep", "--study", *real, "--wait")
        assert "waiting: cpu is in use by a tuner" in waiting.stderr.readline()
        assert waiting.poll() is None
    out, err = waiting.communicate(timeout=120)
    assert waiting.returncode == 4, (out, err)  # it went on, to a server that does not start
    assert "launch 0" in err
    last = json.loads((tuner.folder / "locks" / "cpu.lock").read_text())
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}") as store:
        marks = [launch.intent.mark for launch in store.launches(1)]
        assert (last["study"], last["storage"], last["launch"]) == ("small", store.shown, marks[-1])
    # Whoever has the devices, a simulation needs none of them.
    with DeviceLocks(["cpu"], "somebody"):
        call("sweep", "--study", real[0], "--name", "sim")


def test_a_real_study_stores_the_machine_and_asks_it_again(tuner, call, real):
    call("sweep", "--study", *real, code=4)
    machine = json.loads(call("show", "--json")[0])["machine"]
    assert machine["sglang"] == "0.5.23"
    assert machine["kernel"]
    site = tuner.folder / "site"
    metadata = site / "sglang-0.5.23.dist-info" / "METADATA"
    edit(metadata, "0.5.23", "0.5.24")
    _, refused = call("resume", "--study", "small", code=2)
    assert "  SGLang: measured with 0.5.23, now 0.5.24\n" in refused
