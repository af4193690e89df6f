"""A study's own conditions (`space.conditions`): where `when` matches, `then` must match too.

They are about the space: a configuration that breaks one is no point of it. Baselines are what
they are, in the space or not, so no condition keeps one out.

A number that a configuration does not have (the steps of `none`, the draft's placement of NGRAM)
matches no `when` and is no breach of a `then`. A flag or variable that is not set has a value:
`null` matches it.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from search_spaces.algorithms import canonical_algorithm
from search_spaces.rules.legality import candidate, canonical
from search_spaces.rules.violation import Violation
from search_spaces.variables import canonical_env

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from search_spaces.configuration import Configuration
    from search_spaces.rules.candidate import Candidate
    from search_spaces.study_file.study import Condition, Pattern, SpaceSpec, Study
    from search_spaces.study_file.values import FixedValue

RULE = "condition"
"""The name of the rule in a `Violation`."""

NUMBERS = ("num_steps", "topk", "num_draft_tokens", "draft_tp")


class StudyCondition:
    """One condition, ready to be asked.

    Attributes:
        place: Where it stands, such as `space.conditions[1]`.
        flags: The flags that it looks at.
        env: The environment variables that it looks at.
        server: Whether it looks at anything but the environment.
    """

    def __init__(self, condition: Condition, place: str) -> None:
        self.place = place
        self._when, self._then = _canonical(condition.when), _canonical(condition.then)
        both = (condition.when, condition.then)
        self.flags = frozenset(name for pattern in both for name in pattern.flags)
        self.env = frozenset(name for pattern in both for name in pattern.env)
        self.server = any(_looks_at_server(pattern) for pattern in both)

    def applies(self, server: Candidate) -> bool:
        """Whether `when` matches."""
        return _server_matches(self._when, server, absent=False) and _env_matches(
            self._when, server.env
        )

    def violation(self, server: Candidate) -> Violation | None:
        """What is wrong with a server (canonical) that breaks it, else `None`."""
        if not self.applies(server):
            return None
        breach = _breach(self._then, server)
        if breach is None:
            return None
        always = not any(_asked(self._when))
        message = breach if always else f"{breach}, where {self.when}"
        return Violation(RULE, message, self.place)

    @property
    def when(self) -> str:
        """`when` in words."""
        return " and ".join(_asked(self._when))


def study_conditions(space: SpaceSpec) -> tuple[StudyCondition, ...]:
    """A study's conditions, in the order of the file."""
    return tuple(
        StudyCondition(condition, f"space.conditions[{index}]")
        for index, condition in enumerate(space.conditions)
    )


def condition_content(condition: Condition) -> dict[str, Any]:
    """What a condition says, whatever its order and spelling, as JSON values."""
    return {
        "when": _content(_canonical(condition.when)),
        "then": _content(_canonical(condition.then)),
    }


def broken_conditions(configuration: Configuration, study: Study) -> tuple[Violation, ...]:
    """The study's conditions that a configuration breaks, in the order of the file.

    Rules are no part of it (`search_spaces.rules.legality.violations`).
    """
    server = candidate(canonical(configuration, study), study)
    found = (condition.violation(server) for condition in study_conditions(study.space))
    return tuple(violation for violation in found if violation is not None)


def _canonical(pattern: Pattern) -> Pattern:
    """The pattern with the spellings that canonical configurations have."""
    algorithms = pattern.algorithm
    if algorithms is not None:
        algorithms = tuple(dict.fromkeys(canonical_algorithm(name) for name in algorithms))
    env = {
        name: tuple(dict.fromkeys(spelled(name, value) for value in values))
        for name, values in pattern.env.items()
    }
    return pattern.model_copy(update={"algorithm": algorithms, "env": env})


@functools.cache
def spelled(name: str, value: FixedValue) -> str | None:
    """A variable's value in the spelling that canonical configurations have."""
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


def _looks_at_server(pattern: Pattern) -> bool:
    return (
        pattern.algorithm is not None
        or bool(pattern.flags)
        or any(getattr(pattern, name) is not None for name in NUMBERS)
    )


def _number(server: Candidate, name: str) -> int | None:
    found = server.draft_tp if name == "draft_tp" else getattr(server.speculation, name)
    return found if isinstance(found, int) else None


def _server_matches(pattern: Pattern, server: Candidate, *, absent: bool) -> bool:
    if pattern.algorithm is not None and server.speculation.algorithm not in pattern.algorithm:
        return False
    for name in NUMBERS:
        if (wanted := getattr(pattern, name)) is not None:
            number = _number(server, name)
            if not (absent if number is None else number in wanted):
                return False
    return all(among(server.flags.get(name), wanted) for name, wanted in pattern.flags.items())


def _env_matches(pattern: Pattern, env: Mapping[str, FixedValue]) -> bool:
    # What the study fixes is spelled as its file has it.
    return all(among(spelled(name, env.get(name)), wanted) for name, wanted in pattern.env.items())


def among(value: FixedValue, wanted: Sequence[FixedValue]) -> bool:
    """Whether a value is one of these; `1` and `True` are two values."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in wanted)


def _breach(then: Pattern, server: Candidate) -> str | None:
    """The first thing that is not as `then` asks."""
    algorithm = server.speculation.algorithm
    if then.algorithm is not None and algorithm not in then.algorithm:
        return f"algorithm must be {_one_of(then.algorithm)}, not {algorithm}"
    for name in NUMBERS:
        wanted, number = getattr(then, name), _number(server, name)
        if wanted is not None and number is not None and number not in wanted:
            return f"{name} must be {_one_of(wanted)}, not {number}"
    for values, given in ((then.flags, server.flags), (then.env, server.env)):
        for name, choices in values.items():
            if not among(given.get(name), choices):
                value = given.get(name)
                but = " and is not set" if value is None else f", not {shown(value)}"
                return f"{name} must be {_one_of(choices)}{but}"
    return None


def _asked(pattern: Pattern) -> Iterable[str]:
    if pattern.algorithm is not None:
        yield f"algorithm is {_one_of(pattern.algorithm)}"
    for name in NUMBERS:
        if (wanted := getattr(pattern, name)) is not None:
            yield f"{name} is {_one_of(wanted)}"
    for name, values in (*pattern.flags.items(), *pattern.env.items()):
        yield f"{name} is {_one_of(values)}"


def _one_of(values: Sequence[FixedValue]) -> str:
    texts = [shown(value) for value in values]
    numbers = [value for value in values if type(value) is int]
    if len(numbers) == len(values) > 3 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{texts[0]} to {texts[-1]}"
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def shown(value: FixedValue) -> str:
    """A value in a message."""
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
