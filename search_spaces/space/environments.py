"""The environments of a study's points, each in its one spelling."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import TYPE_CHECKING

from search_spaces.rules.legality import canonical_tuned_env
from search_spaces.space.combinations import Pairs, combinations
from search_spaces.variables import CANONICAL_ENV

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from search_spaces.configuration import Value
    from search_spaces.rules.violation import Violation
    from search_spaces.space.checks import Checks, Kind
    from search_spaces.study_file.study import Study


class Environments:
    """The distinct environments that a study's points may have, in a stable order."""

    def __init__(self, study: Study, checks: Checks) -> None:
        self._study = study
        self._checks = checks
        self._choices = study.space.env
        # Names whose spelling depends on each other, or that a check looks at.
        self._watched = checks.env | (CANONICAL_ENV & self._choices.keys())

    def __iter__(self) -> Iterator[tuple[Pairs, Kind]]:
        """One after the other, repeats included."""
        for env, verdict in combinations(self._choices, self._watched, self._settle):
            if isinstance(verdict, tuple):
                yield env, verdict

    @functools.cached_property
    def all(self) -> dict[Pairs, Kind]:
        """Every environment, with what the checks of pairs see of it."""
        out: dict[Pairs, Kind] = {}
        for env, kind in self:
            out.setdefault(env, kind)
        return out

    @functools.cached_property
    def kinds(self) -> dict[Kind, int]:
        """How many environments there are of each kind."""
        return Counter(self.all.values())

    @property
    def first_violation(self) -> Violation | None:
        """Why the first environment that no server may have is refused; `None` if none is."""
        for _, verdict in combinations(self._choices, self._watched, self._settle):
            if not isinstance(verdict, tuple):
                return verdict
        return None

    def choices_of(self, env: Mapping[str, Value]) -> dict[str, Value] | None:
        """The choices that lead to a canonical environment; `None` where it has no such names.

        A value that no choice gives stays as it is.
        """
        if env.keys() != self._choices.keys():
            return None
        settled = tuple((name, env[name]) for name in sorted(self._watched))
        return {**env, **dict(self._spellings.get(settled, ()))}

    @functools.cached_property
    def _spellings(self) -> dict[Pairs, Pairs]:
        """Of the names that are watched: choices, by what they come to."""
        names = [name for name in self._choices if name in self._watched]
        out: dict[Pairs, Pairs] = {}
        for values in itertools.product(*(self._choices[name] for name in names)):
            raw = tuple(zip(names, values, strict=True))
            out.setdefault(self._canonical(raw), raw)
        return out

    def _settle(self, seen: Pairs) -> tuple[Pairs, Kind | Violation]:
        env = self._canonical(seen)
        # What is not watched changes nothing of what the checks see.
        broken = self._checks.of_env(env)
        return env, broken[0] if broken else self._checks.env_kind(env)

    def _canonical(self, seen: Pairs) -> Pairs:
        env = canonical_tuned_env(dict(seen), self._study)
        return tuple((name, env[name]) for name, _ in sorted(seen))
