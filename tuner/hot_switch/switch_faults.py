"""What goes wrong with a server that is prepared for several settings, by the kind of failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.records import Failure, Launch

UNFAITHFUL = "unfaithful"
"""Kind of the failure of a launch whose anchor was not as in its own launch, or of which a state is
not of one server with those that are known to be right."""

NOT_IN_FORCE = "setting_not_in_force"
"""Of a launch whose server was not at the setting that it had been switched to; also the code of
the check of a window that finds it (`docs/validity.md`)."""

ANCHOR_DISTURBED = "anchor_disturbed"
"""Of a launch whose anchor could not be measured undisturbed."""

NOT_COMPARED = "not_compared"
"""Of a launch in which settings had nothing to be held against: they are measured by themselves."""

SWITCH_FAULTS = frozenset(
    {
        UNFAITHFUL,
        NOT_IN_FORCE,
        "hot_switch_memory",
        "plugin_half_loaded",
        "plugin_missing",
        "plugin_refused",
        "switch_refused",
    }
)
"""Kinds of failure that only a server has which is prepared for many settings."""


def unfaithful(launch: Launch, found: str) -> str:
    """What is said of a switched server that is another one than a launch of its own."""
    return f"the switched server of launch {launch.id} differs from a separate launch: {found}"


def describe_fault(launch: Launch, failure: Failure) -> str:
    """Name the cause of a failed launch: `"a fault of the host"`.

    A failure that only a switched server can have is not a fault of the configuration.
    """
    if launch.intent.settings and failure.kind in SWITCH_FAULTS | {NOT_COMPARED}:
        return "a fault of the switched server"
    return f"a fault of the {failure.fault}"
