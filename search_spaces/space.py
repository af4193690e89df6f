"""A study's legal space: its points, and the tree of choices that leads to them."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS
from search_spaces.configuration import Configuration
from search_spaces.flags import distinct
from search_spaces.legal_servers import LegalServers, Pairs
from search_spaces.legality import canonical, canonical_tuned_flags
from search_spaces.parameters import Parameter, sub_space_trees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from search_spaces.configuration import Speculation, Value
    from search_spaces.legality import Violation
    from search_spaces.parameters import Choose, Path
    from search_spaces.study import Study

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
        self._servers = LegalServers(study, self._trees, draft_tp_allowed)
        spec = study.space
        combinations = (
            sum(tree.size for tree in self._trees)
            * len(spec.draft_tp or (None,))
            * math.prod(len(choices) for choices in spec.flags.values())
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
        for speculation, draft_tp, flags in self._servers.all:
            for env in self._environments:
                yield Configuration(speculation, draft_tp, flags, env)

    def __len__(self) -> int:
        return len(self._servers.all) * len(self._environments)

    def __contains__(self, configuration: object) -> bool:
        """Whether a configuration is a point, as it stands: bring it to canonical form first."""
        if not isinstance(configuration, Configuration):
            return False
        server = (configuration.speculation, configuration.draft_tp, configuration.flags)
        return server in self._servers.as_set and configuration.env in self._environment_set

    @property
    def is_empty(self) -> bool:
        """Whether there is no point at all; quick also for a large space."""
        return not self._legal_labels

    @property
    def first_violation(self) -> Violation | None:
        """Why the first illegal combination is illegal; `None` if all are legal."""
        return self._servers.first_violation

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
            raise NotInSpaceError(f"The space is empty: {self.first_violation}")
        label = choose(self._algorithm)
        tree = next(tree for tree in self._trees if tree.label == label)
        speculation = tree.walk(choose)
        draft_tp = None
        if (parameter := self._draft_tp(speculation)) is not None:
            chosen = choose(parameter)
            draft_tp = chosen if isinstance(chosen, int) else None
        flags = {name: choose(p) for name, p in self._flags(speculation).items()}
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
        """A digest of what is searched: model, server and space; 16 hexadecimal digits.

        The order of keys, choices and sub-spaces, and how they are spelled, do not matter; neither
        do workload, objective, budget and comments.
        """
        study = self.study

        def sorted_texts(values: object) -> list[str]:
            return sorted({json.dumps(v) for v in values})  # type: ignore[attr-defined]

        speculations = {s for tree in self._trees for s in tree.paths}
        content = {
            "model": study.model.model_dump(),
            "flags": {k: v for k, v in study.server.flags.items() if v is not None},
            "env": study.server.env,
            "speculation": sorted_texts(s.to_dict() for s in speculations),
            "draft_tp": sorted(study.space.draft_tp or ()),
            "tuned_flags": {k: sorted_texts(v) for k, v in study.space.flags.items()},
            "tuned_env": {k: sorted_texts(v) for k, v in study.space.env.items()},
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    # How points are made

    @functools.cached_property
    def _environments(self) -> tuple[Pairs, ...]:
        tuned = self.study.space.env
        return tuple(
            tuple(sorted(zip(tuned, values, strict=True)))
            for values in itertools.product(*tuned.values())
        )

    @functools.cached_property
    def _environment_set(self) -> frozenset[Pairs]:
        return frozenset(self._environments)

    # The tree of choices

    @functools.cached_property
    def _legal_labels(self) -> tuple[str, ...]:
        return tuple(tree.label for tree in self._trees if self._servers.has_legal(tree))

    @property
    def _algorithm(self) -> Parameter:
        return Parameter("algorithm", self._legal_labels, ordered=False)

    def _draft_tp(self, speculation: Speculation) -> Parameter | None:
        sizes = self.study.space.draft_tp
        if sizes is None or not ALGORITHMS[speculation.algorithm].has_draft:
            return None
        return Parameter.of("draft_tp", [s for s in sizes if self._draft_tp_allowed(s)])

    def _flags(self, speculation: Speculation) -> dict[str, Parameter]:
        return {
            name: Parameter.of(f"flag.{name}", distinct(choices))
            for name, choices in self.study.space.flags.items()
            if speculation.enabled or not name.startswith("speculative-")
        }

    @functools.cached_property
    def _env(self) -> dict[str, Parameter]:
        return {
            name: Parameter.of(f"env.{name}", distinct(choices))
            for name, choices in self.study.space.env.items()
        }

    def _path(self, configuration: Configuration) -> Path:
        speculation = configuration.speculation
        trees = [tree for tree in self._trees if tree.label in self._legal_labels]
        tree = next((tree for tree in trees if speculation in tree.paths), None)
        if tree is None:
            raise NotInSpaceError(f"No sub-space of the study holds {speculation.to_dict()}")
        path: list[tuple[Parameter, Value]] = [(self._algorithm, tree.label)]
        path += tree.paths[speculation]
        if (parameter := self._draft_tp(speculation)) is not None:
            path.append((parameter, _among(parameter, configuration.draft_tp)))
        flags = dict(configuration.flags)
        for name, parameter in self._flags(speculation).items():
            path.append((parameter, self._flag_choice(parameter, name, flags, speculation)))
        env = dict(configuration.env)
        path += [
            (parameter, _among(parameter, env.get(name))) for name, parameter in self._env.items()
        ]
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
