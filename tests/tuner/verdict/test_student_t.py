"""Student's quantiles and intervals, against published tables."""

from __future__ import annotations

import pytest

from tuner.verdict.student_t import mean_interval, t_quantile


@pytest.mark.parametrize(
    ("probability", "df", "quantile"),  # a table of Student's t
    [
        (0.975, 1, 12.706),
        (0.95, 2, 2.920),
        (0.975, 4, 2.776),
        (0.95, 5, 2.015),
        (0.975, 10, 2.228),
        (0.975, 30, 2.042),
        (0.5, 7, 0.0),
    ],
)
def test_quantiles(probability, df, quantile):
    assert t_quantile(probability, df) == pytest.approx(quantile, abs=5e-4)


def test_interval_of_a_mean():
    # Mean 2, deviation 1: 2 -+ 4.303 / sqrt(3).
    assert mean_interval([1.0, 2.0, 3.0], 0.95) == pytest.approx((-0.4841, 4.4841), abs=1e-4)
    assert mean_interval([5.0, 5.0], 0.95) == (5.0, 5.0)
