"""Shape of a JSON value: keys in order, and the types at every place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


@dataclass(slots=True)
class Shape:
    """Combined shape of one or more values.

    Attributes:
        types: Types at each place; a place in a list is `name[]`.
        orders: Orders of the keys of each object.
        lengths: Longest list at each place.
    """

    types: dict[str, set[str]] = field(default_factory=dict)
    orders: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)

    def add(self, value: Any, place: str = "") -> Shape:
        """Add a value; return the shape."""
        self.types.setdefault(place, set()).add(type(value).__name__)
        if isinstance(value, dict):
            self.orders.setdefault(place, set()).add(tuple(value))
            for key, one in value.items():
                self.add(one, f"{place}.{key}" if place else key)
        elif isinstance(value, list):
            self.lengths[place] = max(self.lengths.get(place, 0), len(value))
            for one in value:
                self.add(one, f"{place}[]")
        return self

    def known(self, place: str) -> bool:
        """Return whether no list above this place is empty."""
        parts = place.split("[]")
        above = ("[]".join(parts[:i]) for i in range(1, len(parts)))
        return all(self.lengths.get(part, 0) for part in above)


def differences(real: Shape, simulated: Shape, ignored: Collection[str] = ()) -> Iterator[str]:
    """Describe the differences of two shapes.

    Args:
        real: Shape of the real server's values.
        simulated: Shape of the simulated server's values.
        ignored: Last parts of places that may be null in one shape only.
    """
    gone: list[str] = []
    for place in [*real.types, *(p for p in simulated.types if p not in real.types)]:
        if any(place.startswith((f"{one}.", f"{one}[")) for one in gone):
            continue  # reported at a place above
        if not (real.known(place) and simulated.known(place)):
            continue
        theirs, ours = real.types.get(place), simulated.types.get(place)
        if theirs == ours:
            continue
        if place.rpartition(".")[2].removesuffix("[]") in ignored and theirs and ours:
            gone.append(place)
            continue
        gone.append(place)
        yield f"{place or 'the body'}: {_kinds(ours)}, not {_kinds(theirs)}"
    for place, orders in real.orders.items():
        ours_too = simulated.orders.get(place)
        if ours_too is None or _same_keys(orders) != _same_keys(ours_too):
            continue  # reported above
        if orders != ours_too:
            order = f"{_listed(ours_too)}, not {_listed(orders)}"
            yield f"{place or 'the body'}: keys in the order {order}"


def _same_keys(orders: set[tuple[str, ...]]) -> set[frozenset[str]]:
    return {frozenset(order) for order in orders}


def _kinds(types: set[str] | None) -> str:
    return "missing" if types is None else " or ".join(sorted(types))


def _listed(orders: set[tuple[str, ...]]) -> str:
    return " | ".join(",".join(order) for order in sorted(orders))
