"""Combinations of choices, of which some are one server in two spellings and some are refused."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, Any, TypeVar

from search_spaces.configuration import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

Pairs = tuple[tuple[str, Value], ...]
"""Names with values, sorted by name."""

Verdict = TypeVar("Verdict")


def combinations(
    choices: Mapping[str, Sequence[Value]],
    watched: Collection[str],
    settle: Callable[[Pairs], tuple[Pairs, Verdict] | None],
) -> Iterator[tuple[Pairs, Verdict]]:
    """Every combination, the last name quickest to change, with what `settle` says of it.

    Args:
        choices: Values by name.
        watched: The names that decide: combinations that are equal in them are settled once.
        settle: Called with the watched pairs. Returns them in canonical form (the same names) and
            what else it finds, or `None` for combinations that are left out.
    """
    names = tuple(choices)
    by_name = sorted(range(len(names)), key=names.__getitem__)
    seen_at = [index for index in by_name if names[index] in watched]
    in_order, seen_of = _picker(by_name), _picker(seen_at)
    columns = [[(name, value) for value in choices[name]] for name in names]
    settled: dict[Pairs, tuple[Pairs, Verdict] | None] = {}
    for combination in itertools.product(*columns):
        seen = seen_of(combination)
        if seen not in settled:
            settled[seen] = settle(seen)
        if (found := settled[seen]) is None:
            continue
        pairs, verdict = found
        if pairs == seen:
            yield in_order(combination), verdict
            continue
        changed = list(combination)
        for index, pair in zip(seen_at, pairs, strict=True):
            changed[index] = pair
        yield in_order(changed), verdict


def _picker(indices: Sequence[int]) -> Callable[[Sequence[Any]], Pairs]:
    """Takes the items at these places; `itemgetter` alone gives no tuple for one."""
    if len(indices) > 1:
        return operator.itemgetter(*indices)
    return lambda items: tuple(items[index] for index in indices)
