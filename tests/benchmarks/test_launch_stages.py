"""Where the seconds of a start-up go, from its log's lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.launch_cost import order
from benchmarks.launch_stages import STAGES, seconds_by_stage, stage_begun

LOGS = Path(__file__).parent.parent / "data" / "failed"


@pytest.mark.parametrize(
    ("log", "stages"),
    [
        (
            "0.5.23-cpu/port_in_use",
            [
                "distributed",
                "model_classes",
                "weights",
                "kv_cache",
                "http",
                "warm_up",
                "first_token",
            ],
        ),
        ("0.5.17-h200/fa3", ["distributed", "model_classes", "weights", "kv_cache", "http"]),
    ],
)
def test_stages_of_recorded_logs(log, stages):
    seen: list[str] = []
    for line in (LOGS / f"{log}.log").read_text().splitlines():
        stage = stage_begun(line)
        if stage is not None and (not seen or seen[-1] != stage):
            seen.append(stage)
    assert seen == stages


def test_seconds_of_a_stage_that_comes_back_add_up():
    events = [(9.0, "scheduler"), (16.0, "weights"), (18.0, "graphs"), (19.0, "weights")]
    seconds = seconds_by_stage(0.0, [*events, (99.0, "first_token")], 20.0)
    assert {name: s for name, s in seconds.items() if s} == {
        "launcher": 9.0,
        "scheduler": 7.0,
        "weights": 3.0,
        "graphs": 1.0,
    }


@given(
    st.lists(st.tuples(st.floats(-5, 200), st.sampled_from(list(STAGES)))),
    st.floats(0, 150),
)
def test_stages_make_up_the_whole(events, ended):
    seconds = seconds_by_stage(0.0, events, ended)
    assert sum(seconds.values()) == pytest.approx(ended)
    assert min(seconds.values()) >= 0


def test_ways_take_turns_so_that_drift_meets_them_alike():
    assert order(["a", "b"], 3) == ["a", "b", "b", "a", "a", "b"]
