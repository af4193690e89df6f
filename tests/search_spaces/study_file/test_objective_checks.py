"""Contradictory objectives are refused."""

from __future__ import annotations

import pytest

from search_spaces.problems import StudyFileError

WORKLOAD = {"prompts": {"chat": 1.0}, "output_tokens": 256}
OPEN = [{"request_rate": 4, "requests": 100}]


@pytest.fixture
def problems(make_study):
    def ask(objective=None, **workload):
        try:
            make_study(workload=WORKLOAD | workload, objective=objective or {})
        except StudyFileError as error:
            return [(p.key, p.message) for p in error.problems]
        return []

    return ask


@pytest.mark.parametrize(
    ("given", "key", "says"),
    [
        ({"points": OPEN}, "workload.points[0]", "goodput_request_s"),
        (
            {"objective": {"maximize": "request_s"}, "points": [{"concurrency": 1}, *OPEN]},
            "workload.points[1]",
            "minimize: e2e_p95_ms",
        ),
        ({"objective": {"maximize": "goodput_request_s"}}, "objective.maximize", "write `workload"),
        (
            {"objective": {"minimize": "tpot_p95_ms"}, "output_tokens": 1},
            "objective.minimize",
            "Answers of 1 token",
        ),
        (
            {"goodput": {"tpot_ms": 50}, "output_tokens": 1},
            "workload.goodput.tpot_ms",
            "output_tokens: 256",
        ),
        (
            {"objective": {"subject_to": {"tpot_p99_ms": 20}}, "output_tokens": 1},
            "objective.subject_to.tpot_p99_ms",
            "Answers of 1 token",
        ),
        ({"goodput": {"ttft_ms": 0.5}}, "workload.goodput.ttft_ms", "write 500"),
        ({"goodput": {"ttft_ms": 900, "e2e_ms": 500}}, "workload.goodput.ttft_ms", "no effect"),
        (
            {"objective": {"subject_to": {"e2e_p95_ms": 500, "e2e_p50_ms": 500}}},
            "objective.subject_to.e2e_p50_ms",
            "e2e_p95_ms is never below e2e_p50_ms",
        ),
        (
            {"objective": {"subject_to": {"tpot_p50_ms": 0.005}}},
            "objective.subject_to.tpot_p50_ms",
            "write 5",
        ),
        (
            {"objective": {"subject_to": {"ttft_p50_ms": 900, "e2e_p99_ms": 800}}},
            "objective.subject_to.ttft_p50_ms",
            "e2e_p99_ms is never below ttft_p50_ms",
        ),
        ({"objective": {"subject_to": {}, "minimize": "ttft"}}, "objective.minimize", "valid:"),
    ],
)
def test_contradictory_objectives_are_refused(problems, given, key, says):
    ((where, message),) = problems(**given)
    assert where == key
    assert says in message


@pytest.mark.parametrize(
    "given",
    [
        {"points": OPEN, "objective": {"minimize": "e2e_p95_ms"}},
        {
            "points": [*OPEN, {"concurrency": 8}],
            "goodput": {"ttft_ms": 500, "e2e_ms": 9000},
            "objective": {"maximize": "goodput_request_s"},
        },
        {"objective": {"subject_to": {"ttft_p50_ms": 200, "ttft_p95_ms": 500, "e2e_p50_ms": 900}}},
        {"objective": {"subject_to": {"tpot_p95_ms": 20, "e2e_p95_ms": 10}}},
        {"objective": {"minimize": "ttft_p95_ms"}, "output_tokens": 1},
        {"points": [{"concurrency": 1, "weight": 0.1}, {"concurrency": 8, "weight": 3}]},
    ],
)
def test_valid_objectives_are_accepted(problems, given):
    assert problems(**given) == []
