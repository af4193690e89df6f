"""What a report says of a measurement: as JSON by the promised schema, and in words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from results.records import (
    Failure,
    Launch,
    LaunchIntent,
    LaunchState,
    Measurement,
    Purpose,
    Trial,
    TrialState,
)
from results.store import Store
from results.studies import NewStudy
from runners.base import LaunchCommand
from search_spaces.configuration import Configuration, Speculation
from search_spaces.metrics import Metric
from search_spaces.workload import OperatingPoint
from tuner.formatting import describe_figures, describe_histogram, describe_reasons
from tuner.loop.progress import Lines, Since
from tuner.reports.json_text import dump
from tuner.reports.report import METRICS, StudyReport, point_dict
from tuner.reports.text import render, render_trial
from tuner.verdict.scores import Leaderboard

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "report.schema.json"
FULL = Measurement(
    point=OperatingPoint(8, weight=2.0),
    started_at=1.0,
    window_s=10.0,
    requests=31,
    failed_requests=1,
    output_tokens=900,
    output_tok_s=90.0,
    accept_length=1.5,
    ttft_p50_ms=60.0,
    ttft_p95_ms=71.0,
    tpot_p50_ms=10.0,
    tpot_p95_ms=11.0,
    e2e_p50_ms=2000.0,
    e2e_p95_ms=2100.0,
    prompt_tokens=400,
    cached_tokens=100,
    histogram=(6, 3, 1),
    workload_fingerprint="f",
    simulated=True,
    warnings=("low_acceptance: accept length 1.040",),
    ttft_p99_ms=72.0,
    tpot_p99_ms=12.0,
    e2e_p99_ms=2200.0,
    chunk_p50_ms=15.0,
    chunk_p95_ms=16.0,
    tokens_per_chunk=1.5,
    user_tok_s=66.0,
    accept_rate=0.25,
    request_s=3.1,
    goodput_request_s=2.5,
    client_cpu_share=0.2,
)
# As a database of schema 0001 gives it.
OLD = replace(
    FULL,
    accept_rate=None,
    goodput_request_s=None,
    **dict.fromkeys(("ttft_p99_ms", "tpot_p99_ms", "e2e_p99_ms", "request_s"), math.nan),
    **dict.fromkeys(("user_tok_s", "chunk_p50_ms", "chunk_p95_ms", "tokens_per_chunk"), math.nan),
)
OPEN = replace(FULL, point=OperatingPoint(request_rate=2.5), offered_request_s=2.4)
INVALID = replace(FULL, invalid=("cached_tokens: 300 of 400 prompt tokens came from the cache",))


@pytest.fixture(scope="module")
def points():
    """The schema of one point."""
    schema = json.loads(SCHEMA.read_text())
    return schema["properties"]["trials"]["items"]["properties"]["points"]["items"]


@pytest.mark.parametrize("measurement", [FULL, OLD, OPEN, INVALID])
def test_a_point_is_as_promised_and_every_key_of_it(measurement, points):
    shown = json.loads(dump(point_dict(measurement)))
    jsonschema.validate(shown, points)
    assert set(shown) == set(points["properties"])
    assert shown["point"] == measurement.point.to_dict()


def test_figures_stand_under_their_own_names():
    shown = point_dict(FULL)
    for name in METRICS:
        assert shown[name] == getattr(FULL, name)
    assert shown["success_ratio"] == 31 / 32
    assert shown["cached_share"] == 0.25
    assert shown["correct_drafts_histogram"] == [6, 3, 1]
    assert shown["warnings"] == ["low_acceptance: accept length 1.040"]
    assert point_dict(replace(FULL, requests=0, failed_requests=0))["success_ratio"] is None
    assert point_dict(replace(FULL, prompt_tokens=0))["cached_share"] is None


def test_the_schema_refuses_a_reason_without_its_code(points):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(point_dict(replace(FULL, invalid=("It looks odd.",))), points)


def test_words_for_figures():
    words = dict(describe_figures(FULL))
    assert words["output tok/s"] == "90.0 (simulated)"
    assert words["TTFT p50 / p95 / p99"] == "60.0 / 71.0 / 72.0 ms"
    assert words["requests/s"] == "3.10 answered, 2.50 within the limits"
    assert words["correct drafts"] == describe_histogram((6, 3, 1)) == "0: 60%, 1: 30%, 2: 10%"
    assert "2.40 offered" in dict(describe_figures(OPEN))["requests/s"]


def test_what_was_not_measured_is_left_out():
    words = dict(describe_figures(OLD))
    assert words["TTFT p50 / p95 / p99"] == "60.0 / 71.0 / ? ms"
    assert not {"tok/s of one user", "accept rate", "requests/s", "tokens per chunk"} & set(words)
    assert "nan" not in "".join(words.values())


def test_reasons_come_before_warnings():
    first, second = describe_reasons(INVALID)
    assert first.startswith("invalid: cached_tokens: ")
    assert second.startswith("warning: low_acceptance: ")


@pytest.fixture
def report():
    """A baseline, a trial with a warning, one that is not believed."""
    configurations = [
        Configuration.of(),
        *(Configuration.of(Speculation("EAGLE3", n, 1, n + 1)) for n in (2, 3)),
    ]
    plain = replace(FULL, accept_length=None, histogram=(), warnings=())
    trials = [
        Trial(0, Purpose.BASELINE, TrialState.COMPLETE, configurations[0], measurements=(plain,)),
        Trial(1, Purpose.SEARCH, TrialState.COMPLETE, configurations[1], measurements=(FULL,)),
        Trial(
            2,
            Purpose.SEARCH,
            TrialState.INVALID,
            configurations[2],
            failure=Failure("invalid_measurement", "load", "configuration", INVALID.invalid[0]),
            measurements=(INVALID,),
        ),
    ]
    with Store.open("sqlite://") as store:
        study = store.create_study(NewStudy("small", "study: small\n", "d", "s", "simulated", True))
    leaderboard = Leaderboard.of(
        [replace(trial, launches=(0,)) for trial in trials], {"none": configurations[0]}
    )
    return StudyReport(study, leaderboard, (), 2, None, owner_lives=False)


def test_a_trial_is_shown_with_its_reasons_and_warnings(report, capsys):
    render_trial(report, report.leaderboard.trials[2])
    shown = capsys.readouterr().out
    assert "state: invalid" in shown
    assert "measured at concurrency 8:" in shown
    assert "invalid: cached_tokens: 300 of 400 prompt tokens came from the" in shown
    assert "warning: low_acceptance: accept length 1.040" in shown
    assert "configuration: EAGLE3 steps 3\n" in shown
    assert not any(word in shown for word in ("score", "the server ran", "None", "{"))


def test_a_trial_is_shown_with_what_the_server_made_of_it(report, capsys):
    trial = report.leaderboard.trials[1]
    render_trial(report, replace(trial, resolved=trial.configuration))
    shown = capsys.readouterr().out
    assert "score: 1.000\n" in shown
    assert "the server ran" not in shown
    other = Configuration.of(Speculation("EAGLE3", 5, 1, 6))
    render_trial(report, replace(trial, resolved=other))
    assert "the server ran: EAGLE3 steps 5\n" in capsys.readouterr().out


def test_a_long_message_is_whole_only_where_one_trial_is_shown(report, capsys):
    advice = "Lower --mem-fraction-static."
    failure = Failure("cuda_oom", "kv_cache", "configuration", f"No memory is left. {advice}")
    *first, last = report.leaderboard.trials
    last = replace(last, failure=failure)
    report = replace(report, leaderboard=replace(report.leaderboard, trials=(*first, last)))
    lines = Lines(simulated=True)
    lines.judged(last)
    render(report)
    shown = capsys.readouterr()
    assert "trial 2 is invalid: No memory is left.\n" in shown.out
    assert "[invalid: No memory is left.]" in shown.err
    assert advice not in shown.out + shown.err
    assert "full message: `tuner show --study small --trial 2`" in shown.out
    render_trial(report, last)
    assert advice in capsys.readouterr().out


def test_what_must_be_known_stands_at_the_head_and_under_the_command(report, capsys):
    command = LaunchCommand(("python", "-m", "sglang.launch_server"))
    report = replace(
        report,
        study=replace(report.study, simulated=True),
        command=command,
        profile="kimi (8 x A GPU)",
        notes=("not your machine",),
        cautions=("LL128 is forced on",),
    )
    render(report)
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first == "study small: every figure is simulated with the profile kimi (8 x A GPU)"
    assert second == "note: not your machine"
    assert rest[-2:] == ["python -m sglang.launch_server", "warning: LL128 is forced on"]
    shown = report.to_dict()
    jsonschema.validate(shown, json.loads(SCHEMA.read_text()))
    assert shown["profile"] == "kimi (8 x A GPU)"
    assert shown["best"]["warnings"] == ["LL128 is forced on"]


@pytest.mark.parametrize(("speed", "within"), [(92.0, True), (99.0, False)])
def test_the_strongest_baseline_first_and_a_small_lead_is_told(report, capsys, speed, within):
    plain, second, _ = report.leaderboard.trials
    weak = replace(
        second,
        number=1,
        configuration=Configuration.of(Speculation("EAGLE3", 3, 1, 4)),
        measurements=(replace(FULL, output_tok_s=70.0),),
    )
    best = replace(second, number=2, measurements=(replace(FULL, output_tok_s=speed),))
    baselines = {"default": weak.configuration, "none": plain.configuration}
    report = replace(report, leaderboard=Leaderboard.of([plain, weak, best], baselines))
    render(report)
    shown = capsys.readouterr().out
    answer = next(line for line in shown.splitlines() if line.startswith("best: "))
    assert answer.index("over baseline 'none'") < answer.index("over baseline 'default'")
    assert ("keep 'none' until the lead is confirmed" in " ".join(shown.split())) is within
    assert (f"its lead of {speed / 90 - 1:.1%} over 'none'" in " ".join(shown.split())) is within


def failed_launch(failure):
    intent = LaunchIntent(Configuration.of(), (), "mark", "launch.log")
    return Launch(7, LaunchState.FAILED, intent, failure=failure, trials=(2,))


def test_a_failure_is_told_once(report, capsys):
    failure = Failure("cuda_oom", "kv_cache", "configuration", "No memory is left.")
    other = Failure("port_taken", "ready", "host", "The port is taken.")
    *first, last = report.leaderboard.trials
    last = replace(last, failure=failure, state=TrialState.INFEASIBLE, launches=(7,))
    lines = Lines(simulated=True)
    lines.judged(last)
    lines.launch_failed(failed_launch(failure), failure)
    lines.launch_failed(failed_launch(other), other)
    said = capsys.readouterr().err
    assert said.count("No memory is left.") == 1
    assert "launch 7 failed in kv_cache (cuda_oom, a fault of the configuration); log: " in said
    assert "a fault of the host): The port is taken.; log: launch.log" in said
    leaderboard = replace(report.leaderboard, trials=(*first, last))
    for told, lines_of_it in ((failure, 0), (other, 1)):
        render(replace(report, leaderboard=leaderboard, launches=(failed_launch(told),)))
        shown = capsys.readouterr().out
        assert shown.count("No memory is left.") == 1
        assert shown.count("launch 7 failed, not counted: The port is taken.") == lines_of_it


def test_the_seconds_of_a_phase_go_on(monkeypatch):
    now = 100.0
    monkeypatch.setattr("tuner.loop.progress.time.monotonic", lambda: now)
    since = Since("starting: weights", 12.0)
    assert since.__rich__().plain == "starting: weights (12 s)"
    now = 103.0
    assert since.__rich__().plain == "starting: weights (15 s)"


def test_a_new_launch_ends_what_was_said_of_the_last_one(report, monkeypatch):
    shown = []
    lines = Lines(simulated=True)
    status = SimpleNamespace(
        update=lambda since: shown.append(since.__rich__().plain),
        console=SimpleNamespace(print=lambda *_, **__: None),
    )
    monkeypatch.setattr(lines, "_status", status)
    lines.measuring("trial 0, concurrency 1")
    launch = failed_launch(None)
    planned = SimpleNamespace(trials=report.leaderboard.trials[:1], anchor=None)
    lines.launching(launch, planned, None)
    assert shown == ["measuring trial 0, concurrency 1 (0 s)", "starting launch 7 (0 s)"]


def test_a_study_is_shown_with_one_line_per_kind_of_warning(report, capsys):
    render(report)
    shown = capsys.readouterr().out
    assert "warning, trial 1 (and in 1 more): low_acceptance: accept length 1.040" in shown
    assert "trial 2 is invalid: cached_tokens: 300 of 400" in shown


def test_a_narrow_table_keeps_names_whole(report, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    plain, second, _ = report.leaderboard.trials
    env = {"NCCL_PROTO": "LL,LL128,Simple", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}
    tuned = Configuration.of(Speculation("EAGLE3", 2, 1, 3), env=env)
    trials = [plain, replace(second, configuration=tuned)]
    leaderboard = Leaderboard.of(
        trials, {"none": plain.configuration, "default": plain.configuration}
    )
    render(replace(report, leaderboard=leaderboard, study=replace(report.study, simulated=True)))
    lines = capsys.readouterr().out.split("\nits tuner")[0].splitlines()
    table = [line for line in lines if not line.startswith(("warning", "study"))]
    assert max(map(len, table)) <= 80
    assert all(line == line.rstrip() for line in table)
    for name in ("NCCL_PROTO=LL,LL128,Simple", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1"):
        assert any(name in line for line in table), name
    assert any(line.endswith("best, baseline") for line in table)


def test_an_invalid_trial_has_figures_and_no_score(report):
    shown = report.to_dict()["trials"][2]
    assert shown["output_tok_s"] == 90.0
    assert shown["score"] is None
    assert shown["points"][0]["invalid"] == list(INVALID.invalid)


@pytest.mark.parametrize(
    ("metric", "column", "answer"),
    [
        (
            Metric("goodput_request_s"),
            "good",
            "3.00 simulated good req/s (80.0 tok/s); +20.0% over baseline 'none' (2.50 good req/s)",
        ),
        (
            Metric("ttft_p95_ms", larger_is_better=False),
            "TTFT",
            "35.5 simulated TTFT p95 ms (80.0 tok/s); +100.0% over baseline 'none' (71.0 TTFT",
        ),
    ],
)
def test_what_a_study_ranks_by_is_shown_first(report, capsys, metric, column, answer):
    better = replace(FULL, output_tok_s=80.0, goodput_request_s=3.0, ttft_p95_ms=35.5)
    plain, second, _ = report.leaderboard.trials
    trials = [plain, replace(second, measurements=(better,))]
    leaderboard = Leaderboard.of(trials, {"none": plain.configuration}, metric)
    report = replace(report, leaderboard=leaderboard, study=replace(report.study, simulated=True))
    render(report)
    shown = capsys.readouterr().out
    header = next(line for line in shown.splitlines() if "accept" in line)
    assert header.index(column) < header.index("simulated")
    assert header.count("TTFT") == 1
    assert f"best: trial 1, {answer}" in shown
