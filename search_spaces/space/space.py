"""A study's legal space: its points, and the tree of choices that leads to them."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS
from search_spaces.configuration import Configuration
from search_spaces.flags.flags import distinct
from search_spaces.rules.legality import canonical, canonical_tuned_flags
from search_spaces.space.checks import Checks
from search_spaces.space.conditions import study_conditions
from search_spaces.space.digest import space_digest
from search_spaces.space.environments import Environments
from search_spaces.space.legal_servers import LegalServers
from search_spaces.space.parameters import Parameter, sub_space_trees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from search_spaces.configuration import Speculation, Value
    from search_spaces.rules.violation import Violation
    from search_spaces.space.checks import Kind
    from search_spaces.space.combinations import Pairs
    from search_spaces.space.parameters import Choose, Path, SubSpaceTree
    from search_spaces.study_file.study import Study

MOST_POINTS = 1_000_000
"""Spaces with more combinations than this are refused."""


class SpaceTooLargeError(ValueError):
    """The space has more than `MOST_POINTS` combinations."""


class NotInSpaceError(ValueError):
    """No choice of parameters gives this configuration."""


def _always(_draft_tp: int) -> bool:
    return True


class Space:
    """The distinct legal canonical configurations of a study.

    Immutable; what is costly is computed when it is first asked for.

    Args:
        study: The study.
        draft_tp_allowed: Whether the runner can place a draft at this tensor-parallel size.

    Raises:
        SpaceTooLargeError: More than `MOST_POINTS` combinations, illegal ones included.
    """

    def __init__(self, study: Study, draft_tp_allowed: Callable[[int], bool] = _always) -> None:
        self.study = study
        self._draft_tp_allowed = draft_tp_allowed
        self._trees = sub_space_trees(study)
        self._tuned = frozenset(study.space.tuned_flags)
        self._checks = Checks(study, study_conditions(study.space))
        self._servers = LegalServers(study, self._trees, self._checks, draft_tp_allowed)
        self._environments = Environments(study, self._checks)
        spec = study.space
        combinations = (
            sum(tree.size for tree in self._trees)
            * len(spec.draft_tp or (None,))
            * math.prod(len(choices) for choices in spec.env.values())
        )
        if combinations > MOST_POINTS:
            raise SpaceTooLargeError(
                f"{combinations:,} combinations are more than {MOST_POINTS:,}; search fewer flags "
                "or variables at a time, or give them fewer choices"
            )

    # Points

    @functools.cached_property
    def points(self) -> tuple[Configuration, ...]:
        """Every point, in a stable order.

        Sub-spaces in the order of the file, in each chains before trees and numbers rising; then
        draft_tp, flags and, quickest to change, the environment, in the order of their choices.
        """
        return tuple(self)

    def __iter__(self) -> Iterator[Configuration]:
        for (speculation, draft_tp, flags), kind in self._servers.all.items():
            for env in self._beside(kind):
                yield Configuration(speculation, draft_tp, flags, env)

    def __len__(self) -> int:
        return sum(
            servers * environments
            for server, servers in self._servers.kinds.items()
            for env, environments in self._environments.kinds.items()
            if self._checks.hold_together(server, env)
        )

    def __contains__(self, configuration: object) -> bool:
        """Whether a configuration is a point, as it stands: bring it to canonical form first."""
        if not isinstance(configuration, Configuration):
            return False
        server = (configuration.speculation, configuration.draft_tp, configuration.flags)
        of_server = self._servers.all.get(server)
        of_env = self._environments.all.get(configuration.env)
        if of_server is None or of_env is None:
            return False
        return self._checks.hold_together(of_server, of_env)

    @functools.cached_property
    def speculations(self) -> frozenset[Speculation]:
        """Every speculation that some point has, or would have in another environment."""
        return frozenset(speculation for speculation, _, _ in self._servers.all)

    @property
    def is_empty(self) -> bool:
        """Whether there is no point at all; quick also for a large space."""
        return not self._legal_labels

    @property
    def first_violation(self) -> Violation | None:
        """Why the first combination that is no point is none; `None` if all are points."""
        alone = self._servers.first_violation or self._environments.first_violation
        return alone if alone is not None else self._first_violation_of_pairs

    @property
    def why_empty(self) -> Violation | None:
        """The first of what leaves no point at all, of a space that is empty.

        A combination that is illegal by itself is not it where others are legal: then what
        excludes those is told.
        """
        if not any(True for tree in self._trees for _ in self._servers.of_tree(tree)):
            return self._servers.first_violation
        if not self._has_environment:
            return self._environments.first_violation
        return self._first_violation_of_pairs

    @property
    def _first_violation_of_pairs(self) -> Violation | None:
        if not self._checks.pairs_matter:
            return None
        for (speculation, draft_tp, flags), server in self._servers.all.items():
            for env, kind in self._environments.all.items():
                if not self._checks.hold_together(server, kind):
                    point = Configuration(speculation, draft_tp, flags, env)
                    return self._checks.of_pair(point)[0]
        return None

    # Parameters

    def sample(self, choose: Choose) -> Configuration:
        """Walks the tree of choices.

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
        """The inverse of `sample`: parameter names to values.

        Raises:
            NotInSpaceError: No choice of parameters gives this configuration. (An illegal one may
                have its choices, and a baseline may have none.)
        """
        return {parameter.name: value for parameter, value in self._path(configuration)}

    def parameters_of(self, configuration: Configuration) -> tuple[Parameter, ...]:
        """The parameters that apply to a configuration, in the order in which they are chosen.

        Raises:
            NotInSpaceError: As for `assignments`.
        """
        return tuple(parameter for parameter, _ in self._path(configuration))

    @functools.cached_property
    def digest(self) -> str:
        """A digest of what is searched (`search_spaces.space.digest`); 16 hexadecimal digits."""
        return space_digest(self.study, self._trees)

    # How points are made

    @functools.cached_property
    def _beside(self) -> Callable[[Kind], tuple[Pairs, ...]]:
        @functools.cache
        def beside(server: Kind) -> tuple[Pairs, ...]:
            environments = self._environments.all.items()
            return tuple(e for e, kind in environments if self._checks.hold_together(server, kind))

        return beside

    def _has_point(self, tree: SubSpaceTree) -> bool:
        if not self._checks.pairs_matter:
            return any(True for _ in self._servers.of_tree(tree)) and self._has_environment
        kinds = self._environments.kinds
        return any(
            self._checks.hold_together(server, env)
            for _, server in self._servers.of_tree(tree)
            for env in kinds
        )

    @functools.cached_property
    def _has_environment(self) -> bool:
        return any(True for _ in self._environments)

    # The tree of choices

    @functools.cached_property
    def _legal_labels(self) -> tuple[str, ...]:
        return tuple(tree.label for tree in self._trees if self._has_point(tree))

    @property
    def _algorithm(self) -> Parameter:
        return Parameter("algorithm", self._legal_labels, ordered=False)

    def _draft_tp(self, speculation: Speculation) -> Parameter | None:
        sizes = self.study.space.draft_tp
        if sizes is None or not ALGORITHMS[speculation.algorithm].has_draft:
            return None
        return Parameter.of("draft_tp", [s for s in sizes if self._draft_tp_allowed(s)])

    @functools.cached_property
    def _env(self) -> dict[str, Parameter]:
        return {
            name: Parameter.of(f"env.{name}", distinct(choices))
            for name, choices in self.study.space.env.items()
        }

    def _path(self, configuration: Configuration) -> Path:
        speculation = configuration.speculation
        trees = [
            tree
            for tree in self._trees
            if tree.label in self._legal_labels and speculation in tree.paths
        ]
        if not trees:
            raise NotInSpaceError(f"No sub-space of the study holds {speculation.to_dict()}")
        for tree in trees[:-1]:
            try:
                return self._path_through(tree, configuration)
            except NotInSpaceError:
                continue  # sub-spaces of one algorithm may differ in their flags alone
        return self._path_through(trees[-1], configuration)

    def _path_through(self, tree: SubSpaceTree, configuration: Configuration) -> Path:
        speculation = configuration.speculation
        path: list[tuple[Parameter, Value]] = [(self._algorithm, tree.label)]
        path += tree.paths[speculation]
        if (parameter := self._draft_tp(speculation)) is not None:
            path.append((parameter, _among(parameter, configuration.draft_tp)))
        flags = dict(configuration.flags)
        for name, value in flags.items():
            if name not in tree.flags and (value is not None or name not in self._tuned):
                raise NotInSpaceError(f"The flag {name} is not varied in sub-space {tree.label}")
        for name, flag in tree.flag_parameters(speculation).items():
            path.append((flag, self._flag_choice(flag, name, flags, speculation)))
        env = self._environments.choices_of(dict(configuration.env))
        if env is None:
            raise NotInSpaceError("It sets other variables than those that are varied")
        path += [(parameter, _among(parameter, env[name])) for name, parameter in self._env.items()]
        return tuple(path)

    def _flag_choice(
        self, parameter: Parameter, name: str, flags: dict[str, Value], speculation: Speculation
    ) -> Value:
        # A choice that SGLang drops beside this speculation reads as None.
        for choice in parameter.choices:
            tried = canonical_tuned_flags(flags | {name: choice}, speculation, self.study)
            if tried[name] == flags.get(name):
                return choice
        return _among(parameter, flags.get(name))


def _among(parameter: Parameter, value: Value) -> Value:
    if value not in parameter.choices:
        raise NotInSpaceError(f"{value!r} is not among the choices of {parameter.name}")
    return value
