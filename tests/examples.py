"""How many examples tests of properties draw.

The same ones in every run, so that a change is judged by what it changes, and few enough for a
machine that is busy. For a longer look, TUNER_TESTS_EXAMPLES=10 draws ten times as many, others
each time.
"""

from __future__ import annotations

import os

import hypothesis

TIMES = int(os.environ.get("TUNER_TESTS_EXAMPLES", "1"))


def examples(usual: int) -> int:
    """For `max_examples`."""
    return usual * TIMES


def load_profile() -> None:
    """What all of these tests have in common."""
    hypothesis.settings.register_profile(
        "tuner",
        deadline=None,
        derandomize=TIMES == 1,
        max_examples=examples(50),
        # How long an example takes is the machine's affair.
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("tuner")
