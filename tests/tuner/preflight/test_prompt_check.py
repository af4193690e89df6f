"""Prompts and arrival traces are checked before any launch."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from results.store import Store
from search_spaces.problems import StudyFileError
from search_spaces.study_file.load import load_study
from tuner.cli.app import run
from tuner.preflight.workload import check_prompts
from tuner.studies.assembly import build_problem, describe_new, make_servers

pytestmark = pytest.mark.slow

STUDY = """\
study: mine
model: {path: some/model}
space: {speculation: [{algorithm: none}]}
workload:
  prompts: {PROMPTS}
  output_tokens: 16
  goodput: {ttft_ms: 60000}
  points:
    - {concurrency: 2, requests: 8}
    - {POINT}
objective: {maximize: goodput_request_s}
budget: {launches: 2}
runner: simulated
simulated: {profile: kimi, time_scale: 20}
"""


@pytest.fixture
def study(tmp_path):
    def write(prompts="chat: 1", point="{request_rate: 2, requests: 8}", lines=20, times=8):
        folder = tmp_path / "studies"
        folder.mkdir(exist_ok=True)
        questions = "".join(json.dumps({"prompt": f"Question {n}?"}) + "\n" for n in range(lines))
        (folder / "mine.jsonl").write_text(questions)
        (folder / "arrivals.jsonl").write_text("".join(f"{n * 2}\n" for n in range(times)))
        file = folder / "mine.yaml"
        file.write_text(STUDY.replace("{PROMPTS}", f"{{{prompts}}}").replace("{POINT}", point))
        return file

    return write


def problems(file):
    with pytest.raises(StudyFileError) as caught:
        check_prompts(load_study(file))
    return [(problem.key, problem.line, problem.message) for problem in caught.value.problems]


def test_paths_start_at_the_study(study):
    check_prompts(
        load_study(study("jsonl:mine.jsonl: 1, chat: 1", "{trace: arrivals.jsonl, requests: 8}"))
    )


def test_a_missing_file_is_refused(study):
    [(key, line, message)] = problems(study("jsonl:yours.jsonl: 1"))
    assert (key, line) == ("workload.prompts.jsonl:yours.jsonl", 5)
    assert "yours.jsonl (No such file or directory)" in message
    assert "folder of the study file" in message


def test_an_invalid_line_is_refused(study):
    file = study("jsonl:mine.jsonl: 1")
    (file.parent / "mine.jsonl").write_text('"one"\n{"question": 2}\n')
    [(key, _, message)] = problems(file)
    assert key == "workload.prompts.jsonl:mine.jsonl"
    assert "needs one of the keys" in message


def test_too_few_prompts_are_refused(study):
    found = problems(study("jsonl:mine.jsonl: 1", lines=9))
    assert [(key, line) for key, line, _ in found] == [("workload.points[0]", 9)]
    assert "10 distinct prompts" in found[0][2]


def test_too_few_prompts_of_a_data_set_are_refused(study):
    [(key, _, message)] = problems(
        study("'sglang:random-ids?num-prompts=3': 1", "{concurrency: 1, requests: 2}")
    )
    assert key == "workload.points[0]"
    assert "has only 3" in message


@pytest.mark.parametrize(
    ("trace", "times", "says"),
    [("none.jsonl", 8, "cannot read"), ("arrivals.jsonl", 7, "has 7 arrivals")],
)
def test_a_missing_or_short_trace_is_refused(study, trace, times, says):
    [(key, line, message)] = problems(study(point=f"{{trace: {trace}, requests: 8}}", times=times))
    assert (key, line) == ("workload.points[1].trace", 10)
    assert says in message


def test_a_mooncake_trace_gets_a_note_on_milliseconds(study, capsys):
    file = study(point="{trace: arrivals.jsonl, requests: 8}")
    rows = [{"timestamp": 500 * n, "output_length": 52} for n in range(8)]
    trace = file.parent / "arrivals.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["validate", "--study", str(file), "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["warnings"]
    assert run(["sweep", "--study", str(file), "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["notes"]
    for found in (notes, planned):
        [note] = [note for note in found if note.startswith("workload.points[1].trace: ")]
        assert "milliseconds" in note
        assert "lengths are not used" in note


def test_a_study_with_files_and_open_loops_runs(study, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = study("jsonl:mine.jsonl: 1", "{trace: arrivals.jsonl, requests: 8}")
    for attempt in range(3):
        arguments = ["--study", str(file), "--storage", f"sqlite:///{tmp_path}/{attempt}.db"]
        assert run(["sweep", *arguments, "--json"]) in {0, 4}
        report = json.loads(capsys.readouterr().out)
        [trial] = report["trials"]
        # A window that a busy machine disturbed is not believed: the next one may be.
        if trial["state"] == "complete":
            break
    assert trial["state"] == "complete", trial["failure"]
    assert [point["point"] for point in trial["points"]] == [
        {"concurrency": 2},
        {"trace": "arrivals.jsonl"},
    ]
    assert trial["score"] == pytest.approx(1.0)


def test_resume_reads_files_in_the_folder_of_the_study(study, tmp_path, monkeypatch, capsys):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = study("jsonl:mine.jsonl: 1", "{concurrency: 1, requests: 4}")
    storage = f"sqlite:///{tmp_path}/t.db"
    with Store.open(storage) as store:
        servers = make_servers("simulated", load_study(file), seed=0)
        problem = build_problem(load_study(file), servers, hot_switch=True)
        new = describe_new(
            problem, servers, name="mine", seed=0, planner="random", hot_switch=True,
            launches=1, hours=None,
        )  # fmt: skip
        store.create_study(new)
        assert store.study("mine").base_dir == str(file.parent)
    assert run(["resume", "--study", "mine", "--storage", storage]) in {0, 4}
    assert "launch 0" in capsys.readouterr().err
    # A study that was stored by an older tuner knows no folder: its file does.
    change = "UPDATE tuner_studies SET base_dir = '', stopped = NULL, budget_launches = 2"
    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute(change)
    assert run(["resume", "--study", "mine", "--storage", storage]) == 2
    assert "cannot read mine.jsonl" in capsys.readouterr().err
    assert run(["resume", "--study", str(file), "--storage", storage]) in {0, 4}


def test_a_rate_that_takes_over_a_week_is_refused(study):
    (problem,) = problems(study(point="{request_rate: 1.0e-300, requests: 8}"))
    assert problem[0] == "workload.points[1].request_rate"
    assert "over a week" in problem[2]
