"""The legal servers of a study: its points, but for their environments."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS
from search_spaces.configuration import Configuration, Speculation
from search_spaces.rules.legality import REWRITTEN_FLAGS, canonical_draft_tp, canonical_tuned_flags
from search_spaces.space.combinations import Pairs, combinations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from search_spaces.rules.violation import Violation
    from search_spaces.space.checks import Checks, Kind
    from search_spaces.space.parameters import SubSpaceTree
    from search_spaces.study_file.study import Study

Server = tuple[Speculation, int | None, Pairs]
"""Speculation, draft_tp and flags, in canonical form."""


class LegalServers:
    """The distinct legal servers of a study, in a stable order."""

    def __init__(
        self,
        study: Study,
        trees: tuple[SubSpaceTree, ...],
        checks: Checks,
        draft_tp_allowed: Callable[[int], bool],
    ) -> None:
        self._study = study
        self._trees = trees
        self._checks = checks
        self._draft_tp_allowed = draft_tp_allowed
        own = {name for name in study.space.tuned_flags if name.startswith("speculative-")}
        # SGLang drops some flags beside others; a draft's placement follows the target's.
        self._watched = checks.flags | own | REWRITTEN_FLAGS

    @functools.cached_property
    def all(self) -> dict[Server, Kind]:
        """Every legal server, with what the checks of pairs see of it."""
        found: dict[Server, Kind] = {}
        for tree in self._trees:
            for server, kind in self.of_tree(tree):
                found.setdefault(server, kind)
        return found

    @functools.cached_property
    def kinds(self) -> dict[Kind, int]:
        """How many servers there are of each kind."""
        return Counter(self.all.values())

    def of_tree(self, tree: SubSpaceTree) -> Iterator[tuple[Server, Kind]]:
        """The legal servers of a sub-space, one after the other, repeats included."""
        for server, verdict in self._combinations(tree):
            if isinstance(verdict, tuple):
                yield server, verdict

    @property
    def first_violation(self) -> Violation | None:
        """Why the first illegal server is illegal; `None` if all are legal."""
        for tree in self._trees:
            for _, verdict in self._combinations(tree):
                if not isinstance(verdict, tuple):
                    return verdict
        return None

    def _combinations(self, tree: SubSpaceTree) -> Iterator[tuple[Server, Kind | Violation]]:
        sizes: tuple[int | None, ...] = (None,)
        if ALGORITHMS[tree.algorithm].has_draft and self._study.space.draft_tp is not None:
            sizes = self._study.space.draft_tp
        choices = dict.fromkeys(self._study.space.tuned_flags, (None,)) | tree.flags
        for speculation, size in itertools.product(tree.paths, sizes):

            def settle(
                seen: Pairs, speculation: Speculation = speculation, size: int | None = size
            ) -> tuple[Pairs, tuple[int | None, Kind | Violation]] | None:
                return self._settle(seen, speculation, size)

            for flags, (draft_tp, verdict) in combinations(choices, self._watched, settle):
                yield (speculation, draft_tp, flags), verdict

    def _settle(
        self, seen: Pairs, speculation: Speculation, size: int | None
    ) -> tuple[Pairs, tuple[int | None, Kind | Violation]] | None:
        canonical = canonical_tuned_flags(dict(seen), speculation, self._study)
        flags = tuple((name, canonical[name]) for name, _ in seen)
        draft_tp = canonical_draft_tp(size, speculation, canonical, self._study)
        if draft_tp is not None and not self._draft_tp_allowed(draft_tp):
            return None
        # What is not watched changes nothing of what the checks see.
        server = Configuration(speculation, draft_tp, flags)
        broken = self._checks.of_server(server)
        return flags, (draft_tp, broken[0] if broken else self._checks.server_kind(server))
