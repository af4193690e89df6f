"""Why a window is not believed, but for what a busy machine may add to any of them."""

from __future__ import annotations

TIMING = frozenset(
    {
        "client_late",
        "client_paused",
        "client_saturated",
        "lock_step",
        "silent",
        "simulation_behind",
        "unsteady",
    }
)
"""Checks with tests of their own, on windows that are made to order."""


def codes(measurement):
    """The checks that a measurement fails, this machine's own business aside."""
    found = [reason.split(":")[0] for reason in measurement.invalid]
    return [code for code in found if code not in TIMING]
