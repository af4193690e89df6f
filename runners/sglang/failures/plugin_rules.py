"""How a server ends that has the tuner's plugin in it, and cannot do what it was asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runners.plugin.package import prepared_settings
from runners.plugin.protocol import NAME
from runners.sglang.failures.rule import Rule, ignoring_case

if TYPE_CHECKING:
    from results.records import Failure, LaunchIntent

REFUSED = re.compile(rf"{NAME}: REFUSED (?P<capability>\w+): .*")


def clock_refused(failure: Failure, intent: LaunchIntent) -> bool:
    """Whether a launch failed only because of the cycle's clock, or of what it needs."""
    found = REFUSED.search(failure.message) if failure.kind == "plugin_refused" else None
    return found is not None and (found["capability"] == "clock" or not prepared_settings(intent))


PLUGIN_RULES = (
    Rule("plugin_refused", "configuration", REFUSED),
    # Each state has attention backends and graphs of its own (0.5.17, 0.5.23), so a server with one
    # of them needs less. The traceback goes through the plugin, which has them built.
    Rule(
        "hot_switch_memory",
        "configuration",
        ignoring_case(r".*CUDA out of memory.*|.*OutOfMemoryError.*|CUDA error: out of memory.*"),
        "in the states between which it was to be switched: a launch per setting needs less",
        "cuda_graph",
        also=lambda tail: f"{NAME}/hot_switch.py" in tail,
    ),
)
