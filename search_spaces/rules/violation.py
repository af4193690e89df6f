"""A rule that a configuration breaks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a configuration breaks.

    Attributes:
        rule: Name of the rule (`"tree_capacity"`); `"condition"` for a condition of the study.
        message: The problem, and legal values.
        source: Where the rule was read, or the key of the condition (`"space.conditions[1]"`).
    """

    rule: str
    message: str
    source: str

    def __str__(self) -> str:
        return f"{self.message} [{self.rule}; {self.source}]"
