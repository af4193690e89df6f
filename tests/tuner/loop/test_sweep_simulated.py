"""Whole sweeps through the command line, on real simulated servers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import jsonschema
import psutil
import pytest

from runners.base import RunnerError
from runners.process.ports import free_port_block
from runners.server_info import read_server_info, simulated_of, speculation_of

pytestmark = pytest.mark.slow

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


def check_schema(data: dict, name: str) -> dict:
    jsonschema.validate(data, json.loads((SCHEMAS / f"{name}.schema.json").read_text()))
    return data


def marked_processes(folder: Path) -> list[int]:
    """Servers that were started from `folder`, whoever their parent is."""
    found = []
    for process in psutil.process_iter():
        try:
            if "TUNER_LAUNCH" in process.environ() and process.cwd() == str(folder):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def wait_for(happened, process: subprocess.Popen) -> None:
    """Until it has happened, or the process has ended."""
    deadline = time.monotonic() + 120
    while not happened() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_sweep_show_export_and_the_same_server_again(tuner, write_small, call):
    path = write_small(points="[{concurrency: 1}, {concurrency: 2, weight: 0.5}]")
    done = tuner.run("sweep", "--study", path, "--json", "--seed", "3")
    report = check_schema(json.loads(done.stdout), "report")
    assert report["simulated"] is True
    assert report["budget"]["stopped"] == "exhausted"
    # 2 NCCL settings x (none + 3 steps), each chain in one launch, and the default in its own.
    assert len(report["trials"]) == 8
    assert report["budget"]["launches_spent"] == len(report["launches"]) == 5
    assert {t["state"] for t in report["trials"]} == {"complete"}
    assert report["baselines"] == {"none": 0, "default": 1, "production": None}
    assert [len(t["points"]) for t in report["trials"]] == [2] * 8
    assert report["verdict"]["kind"] == "unconfirmed"
    for trial in report["trials"]:
        assert trial["resolved"] == trial["configuration"]
        steps = trial["configuration"]["speculation"].get("num_steps")
        if steps is None:
            assert trial["accept_length"] is None
        else:
            assert 1 <= trial["accept_length"] <= steps + 1
    best = report["trials"][report["best"]["trial"]]
    assert best["score"] == max(t["score"] for t in report["trials"])
    assert "simulated" in done.stderr

    shown = json.loads(call("show", "--study", "small", "--json")[0])
    assert shown == report
    table, _ = call("show", "--study", "small")
    assert "every figure is simulated" in table
    assert "baseline none" in table
    assert "baseline default" in table

    explained = check_schema(
        json.loads(call("explain", "--study", "small", "--json")[0]), "explain"
    )
    assert [p["point"]["concurrency"] for p in explained["points"]] == [1, 2]
    assert explained["shares"]["verify"] > 0.95
    assert explained["bounds"]["draft_tp"] < 0.05 < explained["bounds"]["NCCL_PROTO"]
    assert explained["break_even"]["decoding_gain"] < 0

    exported = json.loads(call("export", "--study", "small", "--format", "json")[0])
    check_schema(exported, "export")
    assert exported["simulated"] is True
    assert exported["command"] == report["best"]["command"]
    assert exported["argv"][1:3] == ["-m", "sglang.launch_server"]
    assert exported["argv"][exported["argv"].index("--port") + 1] == "30000"

    _, said = call("export", "--study", "small", "--output", "best.sh")
    assert (tuner.folder / "best.sh").read_text().count("SIMULATED") == 1
    assert "best.sh" in said
    subprocess.run(["sh", "-n", "best.sh"], cwd=tuner.folder, check=True)


def test_the_exported_server_runs_what_the_trial_ran(tuner, write_small, call):
    path = write_small(steps="[2]", protos='["LL,LL128,Simple"]')
    report = json.loads(call("sweep", "--study", path, "--json")[0])
    trial = next(
        t for t in report["trials"] if t["configuration"]["speculation"].get("num_steps") == 2
    )
    out, _ = call(
        *("export", "--study", "small", "--format", "json", "--entry", "simulated"),
        *("--trial", str(trial["number"])),
    )
    exported = json.loads(out)
    port = free_port_block()
    argv = [str(port) if word == "30000" else word for word in exported["argv"]]
    env = {k: v for k, v in tuner.env.items() if k not in exported["unset"]}
    server = subprocess.Popen(
        argv,
        env={**env, **exported["env"]},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None
            assert time.monotonic() < deadline
            try:
                info = read_server_info(f"http://127.0.0.1:{port}")
                break
            except RunnerError:
                time.sleep(0.1)
        environ = psutil.Process(server.pid).environ()
    finally:
        server.terminate()
        server.wait(timeout=30)
    assert server.returncode == 0
    resolved = trial["resolved"]
    assert speculation_of(info).to_dict() == resolved["speculation"]
    assert {name: environ.get(name) for name in resolved["env"]} == resolved["env"]
    assert simulated_of(info) == (True, 50.0)


def test_a_second_sweep_is_refused_and_resume_of_a_finished_study_says_so(write_small, call):
    path = write_small(steps="[1]", protos="[null]")
    call("sweep", "--study", path)
    _, refused = call("sweep", "--study", path, code=2)
    assert "tuner resume" in refused
    assert "--name" in refused
    again, said = call("resume", "--study", "small", "--json")
    assert "is finished" in said
    assert len(json.loads(again)["trials"]) == 3  # none, steps 1, and the default 3 steps
    call("sweep", "--study", path, "--name", "second", "--launches", "1")
    assert json.loads(call("show", "--study", "second", "--json")[0])["study"] == "second"


def test_unknown_studies_and_missing_storage(tuner, write_small, call):
    assert "tuner sweep" in call("resume", "--study", "small", code=2)[1]
    path = write_small(steps="[1]", protos="[null]", launches=1)
    call("sweep", "--study", path)
    assert "small" in call("show", "--study", "other", code=2)[1]
    (tuner.folder / "small.yaml").write_text((tuner.folder / "small.yaml").read_text() + "# new\n")
    assert "differs from the study file" in call("export", "--study", path, code=2)[1]


def test_the_budget_stops_the_sweep_and_resume_keeps_the_target(write_small, call):
    path = write_small()
    stopped, _ = call("sweep", "--study", path, "--launches", "3", "--no-hot-switch", "--json")
    report = json.loads(stopped)
    assert report["budget"]["stopped"] == "budget"
    assert report["budget"]["launches_spent"] == 3
    assert len(report["trials"]) == 3
    again = json.loads(call("resume", "--study", "small", "--json")[0])
    assert again["trials"] == report["trials"]


def test_constraints_and_exit_code_3(write_small, call):
    path = write_small(limits="{ttft_p95_ms: 1}", steps="[1]", protos="[null]")
    done, _ = call("sweep", "--study", path, "--json", code=3)
    report = check_schema(json.loads(done), "report")
    assert report["best"] is None
    assert report["verdict"]["kind"] == "infeasible"
    assert {t["state"] for t in report["trials"]} == {"infeasible"}
    assert "ttft_p95_ms" in report["trials"][0]["failure"]["message"]
    assert "no feasible" in call("export", "--study", "small", code=3)[1]
    assert "is finished" in call("resume", "--study", "small")[1]


def test_ctrl_c_ends_cleanly_and_resume_goes_on(tuner, write_small):
    path = write_small(time_scale=20)
    process = tuner.start("sweep", "--study", path, "--json")
    for line in process.stderr:
        if "trial 1" in line:
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    report = check_schema(json.loads(out), "report")
    assert report["budget"]["stopped"] == "interrupted"
    assert report["launches"][-1]["state"] == "lost"
    assert marked_processes(tuner.folder) == []
    finished = json.loads(tuner.run("resume", "--study", "small", "--json").stdout)
    assert finished["budget"]["stopped"] == "exhausted"
    assert [t["number"] for t in finished["trials"]] == list(range(8))
    kept = [t for t in report["trials"] if t["state"] == "complete"]
    assert kept
    for trial in kept:
        assert finished["trials"][trial["number"]]["points"] == trial["points"]


def test_twice_ctrl_c_ends_now(tuner, write_small):
    path = write_small(time_scale=1)
    process = tuner.start("sweep", "--study", path)
    deadline = time.monotonic() + 30
    while not marked_processes(tuner.folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    deadline = time.monotonic() + 10
    while marked_processes(tuner.folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(600)
def test_kill_nine_at_any_moment_loses_and_repeats_nothing(tuner, write_small, call):
    path = write_small(steps="[1, 2, 3, 4]", profile="kimi")
    process = tuner.start("sweep", "--study", path)
    finished: dict[int, dict] = {}
    # Seconds after the beginning of a launch: start-up, warm-up, windows, stop.
    for moment in (0.0, 1.2, 0.3, 1.9, 0.8, 1.5):
        logs = set(tuner.folder.glob("tuner-logs/*"))
        wait_for(lambda logs=logs: set(tuner.folder.glob("tuner-logs/*")) - logs, process)
        try:
            process.wait(timeout=moment)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        report = json.loads(call("show", "--study", "small", "--json")[0])
        for trial in report["trials"]:
            if trial["state"] == "complete":
                finished.setdefault(trial["number"], trial)
        for number, trial in finished.items():
            assert report["trials"][number]["points"] == trial["points"]
        process = tuner.start("resume", "--study", "small")
    process.communicate(timeout=240)
    last, _ = call("resume", "--study", "small", "--json")
    report = check_schema(json.loads(last), "report")
    assert report["budget"]["stopped"] == "exhausted"
    assert marked_processes(tuner.folder) == []
    keys = [json.dumps(t["configuration"], sort_keys=True) for t in report["trials"]]
    assert len(keys) == len(set(keys)) == 10
    assert {t["state"] for t in report["trials"]} == {"complete"}
    for number, trial in finished.items():
        assert report["trials"][number]["points"] == trial["points"]
    lost = [launch for launch in report["launches"] if launch["state"] == "lost"]
    assert lost
    # Optuna's tables say the same.
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(study_name="small", storage=f"sqlite:///{tuner.folder / 'tuner.db'}")
    assert [t.state.name for t in study.trials] == ["COMPLETE"] * 10
    scores = [t["score"] for t in report["trials"]]
    assert [t.value for t in study.trials] == pytest.approx(scores)
    assert study.best_trial.user_attrs["simulated"] is True
    assert re.search("steps|no speculation", study.best_trial.user_attrs["configuration"])


def test_dry_run_launches_nothing(tuner, write_small):
    path = write_small()
    done = tuner.run("sweep", "--study", path, "--dry-run")
    assert "8 legal configurations, planner exhaustive" in done.stdout
    assert "--speculative-num-steps 3" in done.stdout
    lines = done.stdout.splitlines()
    assert "  NCCL_PROTO: not set | LL,LL128,Simple" in lines
    # A launch takes minutes, of which nothing is known yet.
    assert any(line.startswith("time: unknown") and "5 minutes each" in line for line in lines)
    # Trials get an address of their own; a flag stands on each line, to be read.
    assert "--port" not in done.stdout
    assert "    --tp-size 8 \\" in lines
    assert max(len(line) for line in lines if line.startswith("   ")) < 100
    assert not (tuner.folder / "tuner.db").exists()


@pytest.mark.parametrize("planner", ["random", "tpe"])
def test_a_planner_is_chosen_and_spends_the_budget(write_small, call, planner):
    path = write_small(steps="{from: 1, to: 4}", topk="[1, 2]", requests=2, warmup=0)
    options = ("--planner", planner, "--launches", "3", "--no-hot-switch", "--json")
    report = json.loads(call("sweep", "--study", path, *options)[0])
    assert report["planner"] == planner
    assert report["budget"]["stopped"] == "budget"
    purposes = [t["purpose"] for t in report["trials"]]
    assert purposes == ["baseline", "baseline", "search"]
