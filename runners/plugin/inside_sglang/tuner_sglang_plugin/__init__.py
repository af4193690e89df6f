"""The tuner's plugin for SGLang, loaded by SGLang's plugin mechanism.

SGLang (0.5.10 and later) calls `register` in every process that it starts. Without the variables of
`asked_for` the plugin imports and hooks nothing. See `docs/plugin.md`.

The plugin runs in the server's interpreter: standard library only, Python 3.10, no imports of the
tuner.
"""

import os

STEPS_VARIABLE = "TUNER_SWITCHABLE_STEPS"
"""Enables hot switching between these draft steps: `1,2,5`."""

CLOCK_VARIABLE = "TUNER_CYCLE_CLOCK"
"""Enables the cycle clock: `1` (`0` and empty: off)."""


def asked_for() -> bool:
    """Whether the tuner requests any capability."""
    return bool(os.environ.get(STEPS_VARIABLE)) or os.environ.get(CLOCK_VARIABLE, "0") not in _OFF


_OFF = ("", "0")


def register() -> None:
    """Entry point.

    Raises:
        SystemExit: A requested capability cannot work here; the log has the reason.
    """
    if asked_for():
        from .loading import load  # noqa: PLC0415 - a server without the tuner pays nothing

        load()
