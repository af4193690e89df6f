"""What keeps a configuration from being run, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a configuration breaks.

    Attributes:
        rule: The rule's name (`"tree_capacity"`); `"condition"` for one of the study's own.
        message: What is wrong with this configuration, and what would be legal.
        source: Where the rule was read; where a condition stands (`"space.conditions[1]"`).
    """

    rule: str
    message: str
    source: str

    def __str__(self) -> str:
        return f"{self.message} [{self.rule}; {self.source}]"
