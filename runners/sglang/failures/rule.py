"""How one kind of failure is described."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.records import Fault


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of failure.

    Attributes:
        kind: Its stable code.
        fault: Who is to blame.
        pattern: Found in the log; its line is the message.
        hint: What to do, or what the line does not say.
        phase: Where it happened, whatever the log's phases say.
        also: Further condition on the whole tail.
    """

    kind: str
    fault: Fault
    pattern: re.Pattern[str]
    hint: str = ""
    phase: str | None = None
    also: Callable[[str], bool] = lambda _: True


def ignoring_case(text: str) -> re.Pattern[str]:
    """A pattern for texts whose spelling differs between versions."""
    return re.compile(text, re.IGNORECASE)
