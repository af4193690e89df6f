"""The legal servers of a study: its points, but for the environment, which no rule looks at."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS
from search_spaces.configuration import Configuration, Speculation, Value
from search_spaces.legality import (
    Violation,
    broken_rules,
    candidate,
    canonical_draft_tp,
    canonical_tuned_flags,
)
from search_spaces.rules import RULE_FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from search_spaces.parameters import SubSpaceTree
    from search_spaces.study import Study

Pairs = tuple[tuple[str, Value], ...]
"""Names with values, sorted by name."""

Server = tuple[Speculation, int | None, Pairs]
"""Speculation, draft_tp and flags, in canonical form."""


class LegalServers:
    """The distinct legal servers of a study, in a stable order."""

    def __init__(
        self,
        study: Study,
        trees: tuple[SubSpaceTree, ...],
        draft_tp_allowed: Callable[[int], bool],
    ) -> None:
        self._study = study
        self._trees = trees
        self._draft_tp_allowed = draft_tp_allowed
        # Servers that differ only in flags that no rule looks at are judged once.
        self._judge = functools.cache(self._broken)

    @functools.cached_property
    def all(self) -> tuple[Server, ...]:
        """Every legal server."""
        found: dict[Server, None] = {}
        for tree in self._trees:
            for server in self._combinations(tree):
                if server not in found and not self._violations(server):
                    found[server] = None
        return tuple(found)

    @functools.cached_property
    def as_set(self) -> frozenset[Server]:
        """The same, to look one up."""
        return frozenset(self.all)

    def has_legal(self, tree: SubSpaceTree) -> bool:
        """Whether a sub-space holds any legal server."""
        return any(not self._violations(server) for server in self._combinations(tree))

    @property
    def first_violation(self) -> Violation | None:
        """Why the first illegal combination is illegal; `None` if all are legal."""
        for tree in self._trees:
            for server in self._combinations(tree):
                if broken := self._violations(server):
                    return broken[0]
        return None

    def _combinations(self, tree: SubSpaceTree) -> Iterator[Server]:
        tuned = self._study.space.flags
        sizes: tuple[int | None, ...] = (None,)
        if ALGORITHMS[tree.algorithm].has_draft and self._study.space.draft_tp is not None:
            sizes = self._study.space.draft_tp
        for speculation, size in itertools.product(tree.paths, sizes):
            for values in itertools.product(*tuned.values()):
                given = dict(zip(tuned, values, strict=True))
                flags = canonical_tuned_flags(given, speculation, self._study)
                draft_tp = canonical_draft_tp(size, speculation, flags, self._study)
                if draft_tp is None or self._draft_tp_allowed(draft_tp):
                    yield speculation, draft_tp, tuple(sorted(flags.items()))

    def _violations(self, server: Server) -> tuple[Violation, ...]:
        speculation, draft_tp, flags = server
        seen = tuple((name, value) for name, value in flags if name in RULE_FLAGS)
        return self._judge(speculation, draft_tp, seen)

    def _broken(
        self, speculation: Speculation, draft_tp: int | None, flags: Pairs
    ) -> tuple[Violation, ...]:
        configuration = Configuration(speculation, draft_tp, flags)
        return broken_rules(candidate(configuration, self._study))
