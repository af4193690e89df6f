"""A legality rule, with the source in which it was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from search_spaces.rules.candidate import Candidate


ENGINE = "SGLang 0.5.23"
"""The version that the rules were read from."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        name: Stable name, shown with every violation.
        source: Version, file and line.
        check: Returns the message for a candidate that breaks the rule, else `None`.
        env: Environment variables that the rule reads.
        server: Whether the rule also reads other parts. A rule of the environment alone is checked
            once per environment.
    """

    name: str
    source: str
    check: Callable[[Candidate], str | None]
    env: frozenset[str] = frozenset()
    server: bool = True

    def violation(self, server: Candidate) -> Violation | None:
        """Return the violation of a candidate that breaks the rule, else `None`."""
        message = self.check(server)
        return None if message is None else Violation(self.name, message, self.source)


class Rules:
    """Rules of one kind, in the order of their definition.

    Args:
        engine: Software and version in which the rules were read.
        server: See `Rule`.
    """

    def __init__(self, engine: str = ENGINE, *, server: bool = True) -> None:
        self._engine, self._server = engine, server
        self._rules: list[Rule] = []

    def add(
        self, source: str, env: Iterable[str] = ()
    ) -> Callable[[Callable[[Candidate], str | None]], None]:
        """Register the decorated function as a rule."""

        def register(check: Callable[[Candidate], str | None]) -> None:
            name = check.__name__.lstrip("_")
            read = f"{self._engine}, {source}"
            self._rules.append(Rule(name, read, check, frozenset(env), self._server))

        return register

    @property
    def all(self) -> tuple[Rule, ...]:
        """All registered rules."""
        return tuple(self._rules)


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
