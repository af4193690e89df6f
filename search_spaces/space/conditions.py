"""Conditions of a study (`space.conditions`): where `when` matches, `then` must match too.

A configuration that breaks a condition is not a point of the space. Conditions do not apply to
baselines.

A number that a configuration lacks (such as the steps of `none`) never matches `when` and never
breaks `then`. For an unset flag or variable the value is `null`.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from search_spaces.algorithms import canonical_algorithm
from search_spaces.rules.rule import Violation
from search_spaces.variables import canonical_env

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from search_spaces.rules.rule import Candidate
    from search_spaces.study_file.study import Condition, Pattern, SpaceSpec
    from search_spaces.study_file.values import FixedValue

RULE = "condition"
"""`Violation.rule` of a broken condition."""

NUMBERS = ("num_steps", "topk", "num_draft_tokens", "draft_tp")


class StudyCondition:
    """A condition of a study.

    Attributes:
        place: Key in the study file, such as `space.conditions[1]`.
        env: Environment variables that the condition reads.
        server: Whether the condition reads speculation, draft_tp or flags.
    """

    def __init__(self, condition: Condition, place: str) -> None:
        self.place = place
        self._when, self._then = _canonical(condition.when), _canonical(condition.then)
        both = (condition.when, condition.then)
        self.env = frozenset(name for pattern in both for name in pattern.env)
        self.server = any(_reads_server(pattern) for pattern in both)

    def applies(self, server: Candidate) -> bool:
        """Return whether `when` matches."""
        return _matches(self._when, server)

    def violation(self, server: Candidate) -> Violation | None:
        """Return the violation of a canonical server that breaks the condition, else `None`."""
        if not self.applies(server):
            return None
        breach = _breach(self._then, server)
        if breach is None:
            return None
        always = not any(_descriptions(self._when))
        message = breach if always else f"{breach}, where {self.when}"
        return Violation(RULE, message, self.place)

    @property
    def when(self) -> str:
        """`when` as text."""
        return " and ".join(_descriptions(self._when))


def study_conditions(space: SpaceSpec) -> tuple[StudyCondition, ...]:
    """The conditions of a study, in the order of the file."""
    return tuple(
        StudyCondition(condition, f"space.conditions[{index}]")
        for index, condition in enumerate(space.conditions)
    )


def condition_content(condition: Condition) -> dict[str, Any]:
    """The content of a condition as JSON values, independent of order and spelling."""
    return {
        "when": _content(_canonical(condition.when)),
        "then": _content(_canonical(condition.then)),
    }


def _canonical(pattern: Pattern) -> Pattern:
    """Bring a pattern to the spelling of canonical configurations."""
    algorithms = pattern.algorithm
    if algorithms is not None:
        algorithms = tuple(dict.fromkeys(canonical_algorithm(name) for name in algorithms))
    env = {
        name: tuple(dict.fromkeys(canonical_env_text(name, value) for value in values))
        for name, values in pattern.env.items()
    }
    return pattern.model_copy(update={"algorithm": algorithms, "env": env})


@functools.cache
def canonical_env_text(name: str, value: FixedValue) -> str | None:
    """Bring a variable's value to the spelling of canonical configurations."""
    return canonical_env({name: None if value is None else str(value)}, {})[name]


def _content(pattern: Pattern) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if pattern.algorithm is not None:
        out["algorithm"] = sorted(pattern.algorithm)
    for name in NUMBERS:
        if (wanted := getattr(pattern, name)) is not None:
            out[name] = sorted({*wanted})
    for section in ("flags", "env"):
        if values := getattr(pattern, section):
            out[section] = {
                name: sorted({json.dumps(value) for value in wanted})
                for name, wanted in sorted(values.items())
            }
    return out


def _reads_server(pattern: Pattern) -> bool:
    return (
        pattern.algorithm is not None
        or bool(pattern.flags)
        or any(getattr(pattern, name) is not None for name in NUMBERS)
    )


def _number(server: Candidate, name: str) -> int | None:
    found = server.draft_tp if name == "draft_tp" else getattr(server.speculation, name)
    return found if isinstance(found, int) else None


def _matches(pattern: Pattern, server: Candidate) -> bool:
    if pattern.algorithm is not None and server.speculation.algorithm not in pattern.algorithm:
        return False
    for name in NUMBERS:
        wanted = getattr(pattern, name)
        if wanted is not None and _number(server, name) not in wanted:
            return False
    if not all(contains(wanted, server.flags.get(n)) for n, wanted in pattern.flags.items()):
        return False
    # Fixed variables have the spelling of the file.
    env = server.env
    return all(contains(w, canonical_env_text(n, env.get(n))) for n, w in pattern.env.items())


def contains(values: Sequence[FixedValue], value: FixedValue) -> bool:
    """Return whether a value is among others; `1` and `True` are different values."""
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in values
    )


def _breach(then: Pattern, server: Candidate) -> str | None:
    """Describe the first value that `then` does not allow."""
    algorithm = server.speculation.algorithm
    if then.algorithm is not None and algorithm not in then.algorithm:
        return f"algorithm must be {_one_of(then.algorithm)}, not {algorithm}"
    for name in NUMBERS:
        wanted, number = getattr(then, name), _number(server, name)
        if wanted is not None and number is not None and number not in wanted:
            return f"{name} must be {_one_of(wanted)}, not {number}"
    for values, given in ((then.flags, server.flags), (then.env, server.env)):
        for name, choices in values.items():
            if not contains(choices, given.get(name)):
                value = given.get(name)
                but = " and is not set" if value is None else f", not {format_value(value)}"
                return f"{name} must be {_one_of(choices)}{but}"
    return None


def _descriptions(pattern: Pattern) -> Iterable[str]:
    if pattern.algorithm is not None:
        yield f"algorithm is {_one_of(pattern.algorithm)}"
    for name in NUMBERS:
        if (wanted := getattr(pattern, name)) is not None:
            yield f"{name} is {_one_of(wanted)}"
    for name, values in (*pattern.flags.items(), *pattern.env.items()):
        yield f"{name} is {_one_of(values)}"


def _one_of(values: Sequence[FixedValue]) -> str:
    texts = [format_value(value) for value in values]
    numbers = [value for value in values if type(value) is int]
    if len(numbers) == len(values) > 3 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{texts[0]} to {texts[-1]}"
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def format_value(value: FixedValue) -> str:
    """Format a value for a message."""
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
