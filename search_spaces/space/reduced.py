"""A study's space without points that are known not to run where it would run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from search_spaces.space.space import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study


class ReducedSpace(Space):
    """The points of a space that are not left out.

    What is searched is still what the study says, so `digest` is that of the whole space.

    Args:
        study: The study.
        draft_tp_allowed: See `Space`.
        left_out: Whether a point is left out; quick.
    """

    def __init__(
        self,
        study: Study,
        draft_tp_allowed: Callable[[int], bool],
        left_out: Callable[[Configuration], bool],
    ) -> None:
        super().__init__(study, draft_tp_allowed)
        self._left_out = left_out

    def __iter__(self) -> Iterator[Configuration]:
        return (point for point in super().__iter__() if not self._left_out(point))

    def __len__(self) -> int:
        return self._count

    def __contains__(self, configuration: object) -> bool:
        return super().__contains__(configuration) and not self._left_out(configuration)  # type: ignore[arg-type]

    @functools.cached_property
    def _count(self) -> int:
        return sum(1 for _ in self)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return next(iter(self), None) is None
