"""Failure kinds of servers that are prepared for several settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.records import Failure, Launch

UNFAITHFUL = "unfaithful"
"""A reference check failed, or a setting differs from a checked setting of the same server."""

NOT_IN_FORCE = "setting_not_in_force"
"""The server runs another setting than requested. Also the code of the window check that finds this
(`docs/validity.md`)."""

ANCHOR_DISTURBED = "anchor_disturbed"
"""The reference run could not be measured undisturbed."""

NOT_COMPARED = "not_compared"
"""A setting could not be compared with a checked setting; it is launched separately."""

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
"""Failure kinds that only a server for several settings can have."""


def unfaithful(launch: Launch, found: str) -> str:
    """Message for a switched server that differs from a separate launch."""
    return f"the switched server of launch {launch.id} differs from a separate launch: {found}"


def describe_fault(launch: Launch, failure: Failure) -> str:
    """Name the cause of a failed launch: `"a fault of the host"`.

    A failure that only a switched server can have is not a fault of the configuration.
    """
    if launch.intent.settings and failure.kind in SWITCH_FAULTS | {NOT_COMPARED}:
        return "a fault of the switched server"
    return f"a fault of the {failure.fault}"
