"""The command line's manners: help, errors, exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from search_spaces.prompt_names import parse_shares
from tuner.cli.app import run
from tuner.loop.progress import Lines
from tuner.reports.json_text import dump

HEAVY = ("optuna", "sqlalchemy", "httpx", "pydantic", "yaml", "numpy", "psutil", "rich")


def test_help_names_every_command(capsys):
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for command in (
        "sweep", "resume", "show", "explain", "export", "validate", "spaces", "bench", "doctor",
    ):  # fmt: skip
        assert command in out
    assert "..." not in out.partition("Commands:")[2], "a description was cut"


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from tuner.cli.app import run; run(['--help']);"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_wrong_option_is_a_usage_error(capsys):
    assert run(["sweep", "--study", "kimi", "--launches", "none"]) == 2
    assert "--launches" in capsys.readouterr().err


def test_an_unknown_study_names_the_shipped_ones(capsys):
    assert run(["validate", "--study", "kimmi"]) == 2
    err = capsys.readouterr().err
    assert "kimi" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["kimi", "kimi-demo", "tiny"])
def test_shipped_studies_are_valid(name, capsys):
    assert run(["validate", "--study", name, "--json", "--no-sglang"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"]
    assert data["errors"] == []
    if name == "kimi-demo":
        assert data["legal_points"] == 24


def test_validate_tells_key_and_line(tmp_path, capsys):
    file = tmp_path / "wrong.yaml"
    file.write_text("study: x\nmodle: {path: y}\n")
    assert run(["validate", "--study", str(file), "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert {"key": "modle", "line": 2}.items() <= next(
        e for e in data["errors"] if e["key"] == "modle"
    ).items()


def test_spaces_lists_the_shipped_studies(capsys):
    assert run(["spaces", "--json"]) == 0
    names = [s["name"] for s in json.loads(capsys.readouterr().out)["studies"]]
    assert {"kimi", "kimi-demo", "tiny"} <= set(names)


def test_a_sweep_without_sglang_names_the_simulation(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_SGLANG_PYTHON", sys.executable)
    assert run(["sweep", "--study", "kimi"]) == 2
    err = capsys.readouterr().err
    assert "SGLang is not installed" in err
    assert "--runner simulated" in err
    assert not (tmp_path / "tuner.db").exists()


@pytest.mark.parametrize("name", ["../up", "a/b", "kimi.yaml", ""])
def test_a_name_that_no_command_could_take_again_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["sweep", "--study", "kimi-demo", "--name", name]) == 2
    assert "--name" in capsys.readouterr().err
    assert not (tmp_path / "tuner.db").exists()


def test_json_has_no_nan():
    data = {"points": [{"ttft_p95_ms": float("nan"), "tok_s": 1.5}], "histogram": (1, 2)}
    assert json.loads(dump(data), parse_constant=pytest.fail) == {
        "points": [{"ttft_p95_ms": None, "tok_s": 1.5}],
        "histogram": [1, 2],
    }


def test_doctor(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["doctor", "--json"]) == 0
    checks = {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"]}
    assert set(checks) == {"python", "sglang", "gpus", "storage"}
    assert checks["storage"]["ok"]


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("chat", (("chat", 1.0),)),
        ("chat=0.5,code=0.5", (("chat", 0.5), ("code", 0.5))),
        ("code=3, chat=1", (("chat", 0.25), ("code", 0.75))),
    ],
)
def test_prompt_shares(text, shares):
    assert parse_shares(text) == shares


@pytest.mark.parametrize("text", ["", "chat=x", "chat=-1", "=1", "chat=inf", "chats=1"])
def test_wrong_prompt_shares(text, capsys):
    assert run(["bench", "--url", "http://127.0.0.1:9", "--prompts", text]) == 2
    assert f"--prompts {text}: " in capsys.readouterr().err


class Closed(io.StringIO):
    """A stderr whose reader has left."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_progress_that_nobody_reads_does_not_end_a_sweep(monkeypatch):
    monkeypatch.setattr("sys.stderr", Closed())
    lines = Lines(simulated=True)
    lines.message("launch 0")
    lines.measuring("trial 0")
    lines.done()


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tuner 0.")


@pytest.mark.parametrize("hours", ["0", "-1", "inf", "nan"])
def test_a_budget_of_no_hours_is_refused(hours, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["sweep", "--study", "kimi-demo", "--hours", hours]) == 2
    assert "--hours" in capsys.readouterr().err
    assert not (tmp_path / "tuner.db").exists()


@pytest.mark.parametrize("command", ["show", "sweep"])
def test_two_slashes_are_told(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run([command, "--study", "kimi-demo", "--storage", "sqlite://tuner.db"]) == 2
    assert "sqlite:///tuner.db" in capsys.readouterr().err


def test_what_the_simulation_cannot_play_is_refused_before_anything_is_stored(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "dspark.yaml"
    file.write_text(
        "study: dspark\nmodel: {path: some/model}\n"
        "space: {speculation: [{algorithm: none}, {algorithm: DSPARK, num_draft_tokens: [8]}]}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 64}\nbudget: {launches: 4}\n"
    )
    assert run(["sweep", "--study", "./dspark.yaml", "--runner", "simulated"]) == 2
    assert "does not support DSPARK" in capsys.readouterr().err
    assert not (tmp_path / "tuner.db").exists()


@pytest.mark.parametrize("command", ["validate", "sweep"])
def test_too_few_prompts_are_known_before_any_launch(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide.yaml").write_text(
        "study: wide\nmodel: {path: some/model}\nspace: {speculation: [{algorithm: none}]}\n"
        "workload:\n  prompts: {chat: 1}\n  output_tokens: 64\n  points:\n"
        "    - {concurrency: 1}\n    - {concurrency: 128}\n"
        "budget: {launches: 4}\nrunner: simulated\n"
    )
    assert run([command, "--study", "./wide.yaml"]) == 2
    err = capsys.readouterr().err
    assert "./wide.yaml:9: workload.points[1]: the load needs 640 distinct prompts" in err
    assert not (tmp_path / "tuner.db").exists()


def test_a_database_in_memory_would_keep_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["sweep", "--study", "kimi-demo", "--storage", "sqlite://"]) == 2
    assert "in-memory database" in capsys.readouterr().err


def test_an_unknown_profile_is_refused_before_any_launch(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.yaml").write_text(
        "study: odd\nmodel: {path: some/model}\nspace: {speculation: [{algorithm: none}]}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 64}\nbudget: {launches: 4}\n"
        "runner: simulated\nsimulated: {profile: nope}\n"
    )
    assert run(["sweep", "--study", "./odd.yaml"]) == 2
    assert "simulated.profile 'nope'" in capsys.readouterr().err


def test_a_flag_that_the_engine_has_not_is_refused_before_anything_is_stored(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.yaml").write_text(
        "study: old\nmodel: {path: some/model}\nserver: {flags: {cuda-graph-max-bs: 160}}\n"
        "space: {speculation: [{algorithm: none}]}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 64}\nbudget: {launches: 4}\n"
    )
    assert run(["sweep", "--study", "./old.yaml", "--runner", "simulated"]) == 2
    err = capsys.readouterr().err
    assert "SGLang 0.5.23" in err
    assert "--cuda-graph-max-bs; write `--cuda-graph-max-bs-decode` instead" in err
    assert not (tmp_path / "tuner.db").exists()


def test_bench_of_no_address_is_wrong_usage(capsys):
    assert run(["bench", "--url", "foo"]) == 2
    assert "not an HTTP address" in capsys.readouterr().err
