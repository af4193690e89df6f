"""Several windows of one server: their figures, the mean and its interval."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from tuner.formatting import describe_number, describe_reasons
from tuner.reports.report import point_dict
from tuner.verdict.student_t import mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import Measurement

LEVEL = 0.95

_FIGURES = {
    "output_tok_s": ("output tok/s", ".1f"),
    "user_tok_s": ("tok/s of one user", ".1f"),
    "ttft_p50_ms": ("TTFT p50 ms", ".1f"),
    "tpot_p50_ms": ("TPOT p50 ms", ".2f"),
    "accept_length": ("accept length", ".3f"),
}
"""Title and format of each figure that has an interval."""


def to_dict(
    windows: Sequence[Measurement], repeat: int, *, ended_early: Exception | None = None
) -> dict[str, Any]:
    """The JSON of several windows; `docs/contract.md` has its shape.

    Args:
        windows: The finished ones, at least one.
        repeat: How many were asked for.
        ended_early: Why there are fewer; `None` if there are not.
    """
    return {
        "repeat": repeat,
        "ended_early": None if ended_early is None else str(ended_early),
        "windows": [point_dict(window) for window in windows],
        "valid_windows": len(_valid(windows)),
        "mean": {name: _mean(windows, name) for name in _FIGURES},
        "interval95": {name: _interval(windows, name) for name in _FIGURES},
    }


def describe_progress(windows: Sequence[Measurement], repeat: int) -> str:
    """`"window 2 of 3: 93.8 tok/s"`."""
    last = windows[-1]
    invalid = ", invalid" if last.invalid else ""
    return f"window {len(windows)} of {repeat}: {last.output_tok_s:.1f} tok/s{invalid}"


def describe_windows(windows: Sequence[Measurement]) -> list[str]:
    """A table with a row for each window, the mean, and the limits of its interval."""
    names = [name for name in _FIGURES if any(map(math.isfinite, _values(windows, name)))]
    rows = [
        (f"window {n}{' (invalid)' if window.invalid else ''}", [getattr(window, x) for x in names])
        for n, window in enumerate(windows, 1)
    ]
    valid = len(_valid(windows))
    if valid > 1:
        intervals = [_interval(windows, name) or (None, None) for name in names]
        rows += [
            ("mean", [_mean(windows, name) for name in names]),
            (f"{100 * LEVEL:.0f} % from", [low for low, _ in intervals]),
            (f"{100 * LEVEL:.0f} % to", [high for _, high in intervals]),
        ]
        note = (
            f"The interval (Student's t, {valid} valid windows) covers noise between windows of "
            "one server, not between launches."
        )
    else:
        note = (
            f"No interval: {valid} of {len(windows)} windows {'is' if valid == 1 else 'are'} valid "
            "and at least 2 are needed; see the reasons below"
        )
    header = "".join(f"{_FIGURES[name][0]:>19}" for name in names)
    lines = [f"{'':<20}{header}"]
    for title, values in rows:
        cells = zip(names, values, strict=True)
        shown = (f"{describe_number(value, _FIGURES[name][1]) or '-':>19}" for name, value in cells)
        lines.append(f"{title:<20}{''.join(shown)}")
    return [*lines, note]


def describe_all_reasons(windows: Sequence[Measurement]) -> list[str]:
    """Reasons and warnings of all windows, each with the number of its window."""
    return [
        f"window {n}: {reason}"
        for n, window in enumerate(windows, 1)
        for reason in describe_reasons(window)
    ]


def _valid(windows: Sequence[Measurement]) -> list[Measurement]:
    return [window for window in windows if not window.invalid]


def _values(windows: Sequence[Measurement], name: str) -> list[float]:
    """A figure of each window; NaN where it was not measured."""
    values = (getattr(window, name) for window in windows)
    return [math.nan if value is None else float(value) for value in values]


def _mean(windows: Sequence[Measurement], name: str) -> float | None:
    values = _values(_valid(windows), name)
    return statistics.fmean(values) if _interval(windows, name) else None


def _interval(windows: Sequence[Measurement], name: str) -> tuple[float, float] | None:
    """Limits of the mean over the valid windows; `None` unless at least two have the figure."""
    values = _values(_valid(windows), name)
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return mean_interval(values, LEVEL)
