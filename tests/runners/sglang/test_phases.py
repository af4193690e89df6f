"""The phases of a start-up, read from logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.sglang.phases import (
    FIRST,
    LogFollower,
    PhaseClock,
    StartTimeouts,
    log_tail,
    phase_begun,
)

LOGS = Path(__file__).parents[1].parent / "data" / "failed"


@pytest.mark.parametrize(
    ("log", "phases"),
    [
        (
            "0.5.23-cpu/port_in_use",
            ["distributed", "weights", "kv_cache", "warmup", "ready"],
        ),
        (
            "0.5.23-cpu/eagle_no_draft",
            ["distributed", "weights", "kv_cache", "weights", "kv_cache"],
        ),
        ("0.5.17-h200/fa3", ["distributed", "weights", "kv_cache"]),
        ("0.5.23-cpu/unknown_flag", []),
    ],
)
def test_recorded_logs(log, phases):
    seen: list[str] = []
    for line in (LOGS / f"{log}.log").read_text().splitlines():
        phase = phase_begun(line)
        if phase is not None and (not seen or seen[-1] != phase):
            seen.append(phase)
    assert seen == phases


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("[2026-11-29 19:00:43 TP0] Load weight begin. avail mem=21.65 GB", "weights"),
        ("[2026-11-29 19:00:43 TP3] Load weight begin. avail mem=21.65 GB", None),
        ("[2026-11-29 19:00:43 DP1 TP0] Load weight begin. avail mem=21.65 GB", None),
        (
            "[2026-11-29 18:59:55] Capture target verify CUDA graph begin. backend=full",
            "cuda_graph",
        ),
        ("Capture cuda graph begin. This can take up to several minutes.", "cuda_graph"),
        ("Capturing batches (bs=4 avail_mem=70.78 GB):   0%|", "cuda_graph"),
        ("Disable prefill CUDA graph because cuda_graph_config resolved ...", None),
    ],
)
def test_lines(line, phase):
    assert phase_begun(line) == phase


def test_repeated_phase_adds_up():
    clock = PhaseClock(10.0)
    assert clock.enter("weights", 15.0)
    assert clock.enter("kv_cache", 18.0)
    assert clock.enter("weights", 19.0)
    assert not clock.enter("weights", 19.5)
    assert clock.in_current(20.0) == 1.0
    assert clock.finish(21.0) == ((FIRST, 5.0), ("weights", 5.0), ("kv_cache", 1.0))


def test_timeouts_follow_the_time_scale_down_to_a_floor():
    timeouts = StartTimeouts((("weights", 100.0),), floor_s=5.0)
    assert timeouts.real_seconds("weights", 1.0) == 100.0
    assert timeouts.real_seconds("weights", 10.0) == 10.0
    assert timeouts.real_seconds("weights", 1000.0) == 5.0
    assert timeouts.real_seconds("unheard of", 1.0) > 0


def test_following_a_log_that_grows_in_pieces(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    follower = LogFollower(path)
    assert list(follower.lines()) == ["one"]
    with path.open("ab") as file:
        file.write(b"o\n\xff three\r\nfour")
    assert list(follower.lines()) == ["two", "\N{REPLACEMENT CHARACTER} three"]
    with path.open("ab") as file:
        file.write(b"\n")
    assert list(follower.lines()) == ["four"]
    follower.close()
    assert log_tail(path, 5) == "four\n"
    assert log_tail(tmp_path / "none") == ""
