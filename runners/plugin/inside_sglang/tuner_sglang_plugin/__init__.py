"""What the tuner needs inside SGLang; loaded by SGLang's own plugin mechanism.

SGLang (0.5.10 and later) calls `register` in every process that it starts. Without the variables of
`asked_for` nothing happens: nothing is imported, nothing is hooked. `docs/plugin.md` describes it.

It lives in the server's interpreter, not in the tuner's: standard library only, Python 3.10, and
nothing of the tuner is imported.
"""

import os

STEPS_VARIABLE = "TUNER_SWITCHABLE_STEPS"
"""Asks for the hot switch, among these draft steps: `1,2,5`."""

CLOCK_VARIABLE = "TUNER_CYCLE_CLOCK"
"""Asks for the cycle's clock: `1` (`0`: as if it were not there)."""


def asked_for() -> bool:
    """Whether the tuner asks for anything."""
    return bool(os.environ.get(STEPS_VARIABLE)) or os.environ.get(CLOCK_VARIABLE, "0") not in _OFF


_OFF = ("", "0")


def register() -> None:
    """The entry point.

    Raises:
        SystemExit: A capability was asked for and cannot work here; the log says why.
    """
    if asked_for():
        from .loading import load  # noqa: PLC0415 - a server without the tuner pays nothing

        load()
