"""The search space of a study: its points, and the parameters that lead to them."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from search_spaces.algorithms import ALGORITHMS
from search_spaces.configuration import Configuration
from search_spaces.flags.flags import distinct
from search_spaces.rules import RULES
from search_spaces.rules.legality import (
    candidate,
    canonical,
    canonical_draft_tp,
    canonical_tuned_env,
    canonical_tuned_flags,
)
from search_spaces.space.conditions import StudyCondition, condition_content, study_conditions
from search_spaces.space.parameters import Parameter, SubSpaceTree, sub_space_trees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from search_spaces.configuration import Speculation, Value
    from search_spaces.rules import Rule
    from search_spaces.rules.rule import Candidate, Violation
    from search_spaces.space.conditions import StudyCondition
    from search_spaces.space.parameters import Assignments, Choose
    from search_spaces.study_file.study import Study


MOST_POINTS = 50_000
"""Largest number of servers, of environments, and of servers times environments."""

Env = tuple[tuple[str, "Value"], ...]
"""Environment variables with values, sorted by name."""


class SpaceTooLargeError(ValueError):
    """The space has more than `MOST_POINTS` combinations."""


class NotInSpaceError(ValueError):
    """No choice of parameters gives this configuration."""


class Space:
    """The distinct legal canonical configurations of a study.

    SGLang's rules and the study's conditions look at the server (speculation, draft_tp and flags),
    at the environment, or at both. The first two kinds are checked once per server and per
    environment; only the last kind is checked for each pair.

    Args:
        study: The study.
        draft_tp_allowed: Returns whether the runner can place a draft at this tensor-parallel size.
        excluded: Returns whether a point is left out, for example because SGLang itself refuses it.
            The parameters and the digest stay those of the whole space.

    Raises:
        SpaceTooLargeError: More than `MOST_POINTS` combinations.
    """

    def __init__(
        self,
        study: Study,
        draft_tp_allowed: Callable[[int], bool] = lambda _size: True,
        excluded: Callable[[Configuration], bool] = lambda _point: False,
    ) -> None:
        self.study = study
        self._draft_tp_allowed = draft_tp_allowed
        self._excluded = excluded
        self._trees = sub_space_trees(study)
        varied = frozenset(study.space.env)
        checks: tuple[Rule | StudyCondition, ...] = (*RULES, *study_conditions(study.space))
        self._server_checks = [check for check in checks if not check.env & varied]
        self._env_checks = [check for check in checks if check.env & varied and not check.server]
        self._pair_checks = [check for check in checks if check.env & varied and check.server]
        sizes = len(study.space.draft_tp or (None,))
        _check_size(sum(tree.size for tree in self._trees) * sizes)
        _check_size(math.prod(len(choices) for choices in study.space.env.values()))
        self._servers = {
            server: found
            for tree in self._trees
            for server in self._grid[tree]
            if _first(self._server_checks, found := candidate(server, study)) is None
        }
        self._environments = {
            env: found
            for env in self._env_grid
            if _first(self._env_checks, found := self._env_candidate(env)) is None
        }
        _check_size(len(self._servers) * len(self._environments))

    # Points

    @functools.cached_property
    def points(self) -> tuple[Configuration, ...]:
        """Every point, in a stable order.

        Sub-spaces are in the order of the file, and in each sub-space chains come before trees and
        numbers rise. Then come draft_tp, flags and the environment, in the order of their choices.
        """
        return tuple(point for point in self._legal_points if not self._excluded(point))

    def __iter__(self) -> Iterator[Configuration]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __contains__(self, configuration: object) -> bool:
        """Whether a canonical configuration is a point."""
        return configuration in self._point_set

    @functools.cached_property
    def speculations(self) -> frozenset[Speculation]:
        """Every speculation of a legal server."""
        return frozenset(server.speculation for server in self._servers)

    @property
    def is_empty(self) -> bool:
        """Whether the space has no point."""
        return not any(not self._excluded(point) for point in self._iter_legal())

    @property
    def why_empty(self) -> Violation | None:
        """The first rule or condition that leaves no point of an empty space."""
        if not self._servers:
            servers = (server for tree in self._trees for server in self._grid[tree])
            return _first_of(self._server_checks, (candidate(s, self.study) for s in servers))
        if not self._environments:
            return _first_of(self._env_checks, map(self._env_candidate, self._env_grid))
        return _first_of(self._pair_checks, (pair for _, pair in self._pairs()))

    # Parameters

    def sample(self, choose: Choose) -> Configuration:
        """Builds a configuration from chosen values.

        Args:
            choose: Called for each parameter that applies, the algorithm first.

        Returns:
            A canonical configuration. It may be illegal (a tree of 2 steps and 16 tokens, say):
            the caller checks `in`.

        Raises:
            NotInSpaceError: The space is empty.
        """
        if self.is_empty:
            raise NotInSpaceError(f"The space is empty: {self.why_empty}")
        label = choose(self._algorithm)
        tree = next(tree for tree in self._trees if tree.label == label)
        speculation = tree.walk(choose)
        draft_tp = None
        if (parameter := self._draft_tp(speculation)) is not None:
            chosen = choose(parameter)
            draft_tp = chosen if isinstance(chosen, int) else None
        flags = {name: choose(p) for name, p in tree.flag_parameters(speculation).items()}
        env = {name: choose(p) for name, p in self._env.items()}
        configuration = Configuration.of(speculation, draft_tp=draft_tp, flags=flags, env=env)
        return canonical(configuration, self.study)

    def assignments(self, configuration: Configuration) -> dict[str, Value]:
        """Return the parameter values that `sample` turns into this configuration.

        Raises:
            NotInSpaceError: No choice of parameters gives this configuration. (An illegal
                configuration may have such choices, and a baseline may have none.)
        """
        return {parameter.name: value for parameter, value in self._assigned(configuration)}

    def parameters_of(self, configuration: Configuration) -> tuple[Parameter, ...]:
        """Return the parameters that apply to a configuration, in the order of `sample`.

        Raises:
            NotInSpaceError: As for `assignments`.
        """
        return tuple(parameter for parameter, _ in self._assigned(configuration))

    def _assigned(self, configuration: Configuration) -> Assignments:
        server = replace(configuration, env=())
        env = self._env_grid.get(configuration.env)
        for tree in self._trees:
            chosen = self._grid[tree].get(server)
            if env is not None and chosen is not None and tree.label in self._algorithm.choices:
                return ((self._algorithm, tree.label), *chosen, *env)
        raise NotInSpaceError(f"No choices of the study give {configuration.to_dict()}")

    # Identity

    @functools.cached_property
    def digest(self) -> str:
        """A digest of model, server and space; 16 hexadecimal digits.

        A stored study is compared with its file by this digest. The order and spelling of keys,
        choices, sub-spaces and conditions do not change it; workload, objective, budget and
        comments do not either.
        """
        space = self.study.space
        shared = (s for tree in self._trees if not tree.own_flags for s in tree.paths)
        content: dict[str, Any] = {
            "model": self.study.model.model_dump(),
            "flags": {k: v for k, v in self.study.server.flags.items() if v is not None},
            "env": self.study.server.env,
            "speculation": _texts(speculation.to_dict() for speculation in shared),
            "draft_tp": sorted(space.draft_tp or ()),
            "tuned_flags": {k: _texts(v) for k, v in space.flags.items()},
            "tuned_env": {
                k: _texts(canonical_tuned_env({k: v}, self.study)[k] for v in choices)
                for k, choices in space.env.items()
            },
        }
        # Added only where a study has them: older versions stored digests without these keys.
        if own := [tree for tree in self._trees if tree.own_flags]:
            content["sub_space_flags"] = _texts(
                [speculation.to_dict(), {k: _texts(v) for k, v in sorted(tree.own_flags.items())}]
                for tree in own
                for speculation in tree.paths
            )
        if space.conditions:
            content["conditions"] = _texts(map(condition_content, space.conditions))
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    # Enumeration

    @functools.cached_property
    def _grid(self) -> dict[SubSpaceTree, dict[Configuration, Assignments]]:
        """Per sub-space: every canonical server, legal or not, with the first choices of it."""
        return {tree: self._servers_of(tree) for tree in self._trees}

    def _servers_of(self, tree: SubSpaceTree) -> dict[Configuration, Assignments]:
        servers: dict[Configuration, Assignments] = {}
        for speculation, path in tree.paths.items():
            parameters = tree.flag_parameters(speculation)
            choices = [distinct(tree.flags[name]) for name in parameters]
            draft_tp = self._draft_tp(speculation)
            sizes: list[Any] = [None] if draft_tp is None else self._allowed_sizes()
            for size, *values in itertools.product(sizes, *choices):
                given = dict(zip(parameters, values, strict=True))
                flags = canonical_tuned_flags(given, speculation, self.study)
                placed = canonical_draft_tp(size, speculation, flags, self.study)
                if placed is None or self._draft_tp_allowed(placed):
                    server = Configuration(speculation, placed, tuple(sorted(flags.items())))
                    chosen = () if draft_tp is None else ((draft_tp, size),)
                    flag_choices = zip(parameters.values(), values, strict=True)
                    servers.setdefault(server, (*path, *chosen, *flag_choices))
        return servers

    @functools.cached_property
    def _env_grid(self) -> dict[Env, Assignments]:
        """Every canonical environment, legal or not, with the first choices of it."""
        grid: dict[Env, Assignments] = {}
        choices = [distinct(values) for values in self.study.space.env.values()]
        for values in itertools.product(*choices):
            given = dict(zip(self._env, values, strict=True))
            env = tuple(sorted(canonical_tuned_env(given, self.study).items()))
            grid.setdefault(env, tuple(zip(self._env.values(), values, strict=True)))
        return grid

    def _env_candidate(self, env: Env) -> Candidate:
        return candidate(Configuration(env=env), self.study)

    def _pairs(self) -> Iterator[tuple[Configuration, Candidate]]:
        for server, found in self._servers.items():
            for env, environment in self._environments.items():
                point = Configuration(server.speculation, server.draft_tp, server.flags, env)
                yield point, replace(found, env=environment.env)

    def _iter_legal(self) -> Iterator[Configuration]:
        checks = self._pair_checks
        return (point for point, pair in self._pairs() if _first(checks, pair) is None)

    @functools.cached_property
    def _legal_points(self) -> tuple[Configuration, ...]:
        return tuple(self._iter_legal())

    @functools.cached_property
    def _point_set(self) -> frozenset[Configuration]:
        return frozenset(self.points)

    @functools.cached_property
    def _algorithm(self) -> Parameter:
        servers = {replace(point, env=()) for point in self._legal_points}
        labels = (tree.label for tree in self._trees if servers & self._grid[tree].keys())
        return Parameter("algorithm", tuple(labels), ordered=False)

    def _allowed_sizes(self) -> list[int]:
        return [s for s in self.study.space.draft_tp or () if self._draft_tp_allowed(s)]

    def _draft_tp(self, speculation: Speculation) -> Parameter | None:
        if self.study.space.draft_tp is None or not ALGORITHMS[speculation.algorithm].has_draft:
            return None
        return Parameter.of("draft_tp", self._allowed_sizes())

    @functools.cached_property
    def _env(self) -> dict[str, Parameter]:
        return {
            name: Parameter.of(f"env.{name}", distinct(choices))
            for name, choices in self.study.space.env.items()
        }


def _check_size(count: int) -> None:
    if count > MOST_POINTS:
        raise SpaceTooLargeError(
            f"{count:,} combinations are more than {MOST_POINTS:,}; search fewer flags or "
            "variables at a time, or give them fewer choices"
        )


def _first(checks: Iterable[Rule | StudyCondition], found: Candidate) -> Violation | None:
    for check in checks:
        if (violation := check.violation(found)) is not None:
            return violation
    return None


def _first_of(
    checks: Iterable[Rule | StudyCondition], candidates: Iterable[Candidate]
) -> Violation | None:
    found = (_first(checks, each) for each in candidates)
    return next((violation for violation in found if violation is not None), None)


def _texts(values: Iterable[Any]) -> list[str]:
    return sorted({json.dumps(value) for value in values})


@dataclass(slots=True)
class Effect:
    """The effect of one condition alone on the configurations that obey SGLang's rules.

    Attributes:
        condition: The condition.
        applies: Whether its `when` matches any configuration.
        excludes: Whether it excludes any configuration.
        keeps: Whether it keeps any configuration.
    """

    condition: StudyCondition
    applies: bool = False
    excludes: bool = False
    keeps: bool = False


def condition_effects(study: Study) -> tuple[Effect, ...]:
    """Compute the effects; empty for a space that is too large without its conditions."""
    effects = tuple(Effect(condition) for condition in study_conditions(study.space))
    space = study.space.model_copy(update={"conditions": ()})
    try:
        points = Space(study.model_copy(update={"space": space})) if effects else ()
    except SpaceTooLargeError:
        return ()
    for point in points:
        found = candidate(point, study)
        for effect in effects:
            effect.applies |= effect.condition.applies(found)
            broken = effect.condition.violation(found) is not None
            effect.excludes |= broken
            effect.keeps |= not broken
    return effects
