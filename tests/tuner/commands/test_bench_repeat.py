"""The summary of several windows: which count, their mean, and its interval."""

from __future__ import annotations

import math

import pytest

from results.records import Measurement
from search_spaces.workload import OperatingPoint
from tuner.commands.bench import describe_all_reasons, describe_windows, to_dict


def window(output_tok_s, **changes):
    values = {
        "point": OperatingPoint(8), "started_at": 0.0, "window_s": 10.0, "requests": 32,
        "failed_requests": 0, "output_tokens": 1000, "output_tok_s": output_tok_s,
        "accept_length": 1.5, "ttft_p50_ms": 40.0, "ttft_p95_ms": 80.0, "tpot_p50_ms": 10.0,
        "tpot_p95_ms": 20.0, "e2e_p50_ms": 900.0, "e2e_p95_ms": 999.0, "prompt_tokens": 100,
        "cached_tokens": 0, "histogram": (5, 5), "workload_fingerprint": "f", "simulated": False,
        "user_tok_s": output_tok_s / 8,
    }  # fmt: skip
    return Measurement(**{**values, **changes})


INVALID = window(500.0, invalid=("silent: nothing was heard",))


def test_the_interval_is_students():
    summary = to_dict([window(100.0), window(101.0), window(102.0)], 3)
    assert (summary["repeat"], summary["valid_windows"]) == (3, 3)
    assert [point["output_tok_s"] for point in summary["windows"]] == [100.0, 101.0, 102.0]
    assert summary["mean"]["output_tok_s"] == pytest.approx(101.0)
    # The quantile of 2 degrees of freedom is 4.3027; the deviation is 1.
    half = 4.3027 / math.sqrt(3)
    assert summary["interval95"]["output_tok_s"] == pytest.approx(
        (101 - half, 101 + half), abs=1e-3
    )
    assert summary["interval95"]["accept_length"] == (1.5, 1.5)


def test_invalid_windows_are_shown_and_left_out():
    windows = [window(100.0), INVALID, window(102.0)]
    summary = to_dict(windows, len(windows))
    assert (len(summary["windows"]), summary["valid_windows"]) == (3, 2)
    assert summary["mean"]["output_tok_s"] == 101.0
    rows = describe_windows(windows)
    assert rows[2].split()[:4] == ["window", "2", "(invalid)", "500.0"]
    assert rows[4].split()[:2] == ["mean", "101.0"]
    assert describe_all_reasons(windows) == ["window 2: invalid: silent: nothing was heard"]


@pytest.mark.parametrize("windows", [[window(100.0), INVALID], [INVALID, INVALID]])
def test_fewer_than_two_valid_windows_have_no_interval(windows):
    summary = to_dict(windows, len(windows))
    assert set(summary["mean"].values()) == set(summary["interval95"].values()) == {None}
    text = "\n".join(describe_windows(windows))
    assert "No interval" in text
    assert "mean" not in text


def test_a_figure_that_a_window_lacks_has_no_interval():
    windows = [window(100.0, tpot_p50_ms=math.nan), window(101.0)]
    summary = to_dict(windows, len(windows))
    assert summary["interval95"]["tpot_p50_ms"] is None
    assert summary["interval95"]["ttft_p50_ms"] == (40.0, 40.0)


def test_a_figure_that_no_window_has_is_no_column():
    windows = [window(100.0, accept_length=None), window(101.0, accept_length=None)]
    assert "accept length" not in describe_windows(windows)[0]
    assert to_dict(windows, len(windows))["mean"]["accept_length"] is None
