"""The sections `workload` and `objective` of a study file."""

from __future__ import annotations

import pytest

from search_spaces.metrics import Metric
from search_spaces.problems import StudyFileError
from search_spaces.study_file.load import load_study, parse_study
from search_spaces.workload import Goodput, OperatingPoint, SharedPrefix, Workload

GOOD = """\
study: night
model: {path: some/model}
space: {speculation: [{algorithm: none}]}
workload:
  prompts:
    summary: 2
    jsonl:prompts/mine.jsonl: 1
    sglang:random-ids?random-input-len=64: 1
  output_tokens: 256
  temperature: 0.7
  sampling: {top_p: 0.95, top_k: 40}
  natural_length: true
  shared_prefix: {tokens: 512, groups: 4}
  goodput: {ttft_ms: 500, tpot_ms: 50}
  request_timeout_s: 120
  points:
    - {concurrency: 8}
    - {request_rate: 4, requests: 100}
    - {trace: arrivals.jsonl}
objective: {maximize: goodput_request_s, subject_to: {ttft_p99_ms: 2000}}
budget: {launches: 4}
"""


def test_every_key_of_a_workload_is_read():
    study = parse_study(GOOD, "night.yaml", base_dir="studies")
    assert study.to_workload() == Workload(
        prompts=(
            ("jsonl:prompts/mine.jsonl", 0.25),
            ("sglang:random-ids?random-input-len=64", 0.25),
            ("summary", 0.5),
        ),
        output_tokens=256,
        points=(
            OperatingPoint(8),
            OperatingPoint(request_rate=4, requests=100),
            OperatingPoint(trace="arrivals.jsonl"),
        ),
        temperature=0.7,
        sampling=(("top_k", 40), ("top_p", 0.95)),
        natural_length=True,
        shared_prefix=SharedPrefix(512, 4),
        goodput=Goodput(ttft_ms=500, tpot_ms=50),
        request_timeout_s=120,
    )
    assert study.objective.metric == Metric("goodput_request_s")


def test_paths_start_from_the_file(tmp_path):
    (tmp_path / "night.yaml").write_text(GOOD)
    study = load_study(tmp_path / "night.yaml")
    workload = study.to_workload()
    assert study.base_dir == str(tmp_path)
    assert workload.path("arrivals.jsonl") == tmp_path / "arrivals.jsonl"
    assert workload.path("/elsewhere/a.jsonl").is_absolute()
    assert load_study("kimi").base_dir == ""


def test_a_latency_may_be_the_objective():
    study = parse_study(GOOD.replace("maximize: goodput_request_s", "minimize: e2e_p95_ms"), "x")
    assert study.objective.metric == Metric("e2e_p95_ms", larger_is_better=False)


def test_base_dir_does_not_change_a_workload():
    here, there = (parse_study(GOOD, "x", base_dir=folder) for folder in ("a", "b"))
    assert here.to_workload() == there.to_workload()
    assert here.digest == there.digest


MISTAKES = {
    "no such set": ("summary: 2", "sumary: 2", "workload.prompts.sumary", "did you mean `summary`"),
    "a file without its kind": (
        "jsonl:prompts/mine.jsonl", "mine.jsonl", "workload.prompts.mine.jsonl",
        "for a file write `jsonl:mine.jsonl`",
    ),
    "no such kind": (
        "jsonl:prompts/mine.jsonl", "json:mine.jsonl", "workload.prompts.json:mine.jsonl",
        "did you mean `jsonl`",
    ),
    "no path": (
        "jsonl:prompts/mine.jsonl", "'jsonl:'", "workload.prompts.jsonl:", "is missing",
    ),
    "no such data set": (
        "sglang:random-ids?random-input-len=64", "sglang:randomids",
        "workload.prompts.sglang:randomids", "did you mean `random-ids`",
    ),
    "options that are none": (
        "random-ids?random-input-len=64", "random-ids?random-input-len",
        "workload.prompts.sglang:random-ids?random-input-len", "Invalid options",
    ),
    "no number of prompts": (
        "random-ids?random-input-len=64", "random-ids?num-prompts=many",
        "workload.prompts.sglang:random-ids?num-prompts=many", "must be a whole number above 0",
    ),
    "two loads in one": (
        "{concurrency: 8}", "{concurrency: 8, request_rate: 2}",
        "workload.points[0].request_rate", "Has concurrency and request_rate; keep one",
    ),
    "no load": ("{concurrency: 8}", "{weight: 2}", "workload.points[0]", "Needs one of "),
    "a rate of nothing": (
        "request_rate: 4", "request_rate: 0", "workload.points[1].request_rate", "more than 0",
    ),
    "a rate misnamed": ("request_rate: 4", "rate: 4", "workload.points[1].rate", "`request_rate`"),
    "a trace twice": (
        "{concurrency: 8}", "{trace: arrivals.jsonl}", "workload.points[2].trace", "is repeated",
    ),
    "temperature among sampling": (
        "top_p: 0.95", "temperature: 1", "workload.sampling.temperature", "under `workload`",
    ),
    "a parameter misspelt": (
        "top_p: 0.95", "topp: 0.95", "workload.sampling.topp", "did you mean `top_p`",
    ),
    "out of range": (
        "top_p: 0.95", "top_p: 1.5", "workload.sampling.top_p",
        "Must be a number above 0 and at most 1, not 1.5",
    ),
    "no whole number": ("top_k: 40", "top_k: 4.5", "workload.sampling.top_k", "whole number"),
    "sampling that is no mapping": (
        "{top_p: 0.95, top_k: 40}", "greedy", "workload.sampling",
        "Must be a mapping of names to numbers",
    ),
    "length in words": (
        "natural_length: true", "natural_length: long", "workload.natural_length", "true or false",
    ),
    "a prefix of nothing": (
        "tokens: 512", "tokens: 0", "workload.shared_prefix.tokens", "Must be at least 1",
    ),
    "groups alone": (
        "{tokens: 512, groups: 4}", "{groups: 4}", "workload.shared_prefix.tokens",
        "Missing, such as `tokens: 512`",
    ),
    "goodput of percentiles": (
        "ttft_ms: 500", "ttft_p95_ms: 500", "workload.goodput.ttft_p95_ms", "mean `ttft_ms`",
    ),
    "goodput without limits": (
        "{ttft_ms: 500, tpot_ms: 50}", "{}", "workload.goodput", "Has no limit",
    ),
    "goodput with the objective": (
        "objective: {", "objective: {goodput: {ttft_ms: 5}, ", "objective.goodput",
        "under `workload`",
    ),
    "goodput that nobody defined": (
        "  goodput: {ttft_ms: 500, tpot_ms: 50}\n", "", "objective.maximize",
        "Goodput needs limits",
    ),
    "both directions": (
        "{maximize: goodput_request_s", "{maximize: goodput_request_s, minimize: e2e_p95_ms",
        "objective.minimize", "remove one",
    ),
    "a figure that cannot be minimized": (
        "maximize: goodput_request_s", "minimize: e2e_ms", "objective.minimize",
        "did you mean `e2e_p",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_have_key_line_and_remedy(mistake):
    old, new, key, says = mistake
    assert GOOD.count(old) == 1
    with pytest.raises(StudyFileError) as caught:
        parse_study(GOOD.replace(old, new), "bad.yaml")
    found = {problem.key: problem for problem in caught.value.problems}
    assert says in found[key].message
    if new:
        # On the line that was changed, or on that of a later key that it contradicts.
        assert found[key].line >= GOOD[: GOOD.index(old)].count("\n") + 1


def test_open_points_take_goodput_or_a_latency():
    with pytest.raises(StudyFileError) as caught:
        parse_study(GOOD.replace("maximize: goodput_request_s", "maximize: output_tok_s"), "x")
    assert [(p.key, p.line) for p in caught.value.problems] == [
        ("workload.points[1]", 18),
        ("workload.points[2]", 19),
    ]
    message = caught.value.problems[0].message
    assert "output_tok_s at 4 requests/s equals the arrival rate" in message
    assert "`objective: {maximize: goodput_request_s}`" in message


def test_sampling_at_temperature_0_is_a_mistake():
    with pytest.raises(StudyFileError) as caught:
        parse_study(GOOD.replace("  temperature: 0.7\n", ""), "x")
    assert [p.key for p in caught.value.problems] == [
        "workload.sampling.top_k",
        "workload.sampling.top_p",
    ]
    good = GOOD.replace("  temperature: 0.7\n", "").replace("{top_p: 0.95, top_k: 40}", "{}")
    parse_study(good.replace("sampling: {}", "sampling: {repetition_penalty: 1.1}"), "x")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("output_tokens: 256", "output_tokens: 99999999999999999999", "at most 2147483647"),
        ("tokens: 512", "tokens: 99999999999", "at most 16777216"),
        ("groups: 4", "groups: 99999999999", "at most 100000"),
        ("summary: 2", "summary: 1.0e-320", "too far apart"),
        ("summary: 2", "summary: 1.0e+308, chat: 1.0e+308", "too far apart"),
    ],
)
def test_numbers_have_limits(old, new, says):
    text = GOOD.replace(old, new)
    if "too far apart" in says:
        text = text.replace("jsonl:prompts/mine.jsonl: 1", "jsonl:prompts/mine.jsonl: 1.0e+300")
        text = text.replace(", chat: ", "\n    chat: ")
    with pytest.raises(StudyFileError, match=says):
        parse_study(text, "night.yaml", base_dir="studies")
