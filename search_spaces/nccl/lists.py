"""`NCCL_ALGO` and `NCCL_PROTO`: lists of algorithms and protocols per collective.

Read in NCCL 2.24.3 to 2.30.7, `src/graph/tuning.cc`: `parseList`, `ncclTopoTuneModel`. `;`
separates entries and `,` the names in an entry. An entry may begin with a collective and `:`; only
the first entry may omit the collective, and applies to all. `^` before the first name inverts the
entry. Case does not matter, blanks do.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

COLLECTIVES = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
ALGORITHMS = ("Ring", "Tree", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")

_RING = frozenset({"Ring"})
_GATHERING = frozenset({"Ring", "NVLS", "CollNetDirect", "PAT"})
HAS: Mapping[str, frozenset[str]] = {
    "Broadcast": _RING,
    "Reduce": _RING,
    "AllGather": _GATHERING,
    "ReduceScatter": _GATHERING,
    "AllReduce": frozenset(ALGORITHMS) - {"PAT"},
}
"""Algorithms by collective (`tuning.cc:293-298`, 2.30.7)."""

_SIMPLE_ONLY = frozenset({"NVLS", "NVLSTree", "PAT"})
"""Algorithms that only run with protocol Simple (`tuning.cc:301-304`, 2.30.7)."""


@dataclass(frozen=True, slots=True)
class Enabled:
    """Names that a value enables, by collective.

    Attributes:
        by_collective: Names in NCCL's spelling. For other collectives NCCL decides.
    """

    by_collective: tuple[tuple[str, frozenset[str]], ...]

    def of(self, collective: str) -> frozenset[str] | None:
        """Enabled names of a collective; `None` if NCCL decides."""
        return dict(self.by_collective).get(collective)


class BadListError(ValueError):
    """NCCL refuses a value or ignores a part of it."""


def read(name: str, value: str) -> Enabled:
    """Parse a value of `NCCL_ALGO` or `NCCL_PROTO`.

    Raises:
        BadListError: NCCL refuses the value at start (2.24 and later), or silently ignores a part.
    """
    known = ALGORITHMS if name == "NCCL_ALGO" else PROTOCOLS
    what = "algorithm" if name == "NCCL_ALGO" else "protocol"
    example = f"write `{_example(name)}`"
    out: dict[str, frozenset[str]] = {}
    named: set[str] = set()
    if any(letter.isspace() for letter in value):
        raise BadListError(f"{value!r} has blanks, which NCCL takes for a part of the name: leave "
                           "them out")  # fmt: skip
    for index, entry in enumerate(value.split(";")):
        collectives, names = _entry(entry, value, index, example)
        if not named.isdisjoint(collectives) and index:
            twice = next(iter(named & set(collectives)))
            raise BadListError(
                f"{twice} stands twice in {value!r}, and the last one wins: keep one"
            )
        named |= set(collectives) if index or ":" in entry else set()
        inverted = names.startswith("^")
        chosen = {_known(word, known, what, name) for word in names.removeprefix("^").split(",")}
        left = frozenset(known) - chosen if inverted else frozenset(chosen)
        if not left:
            raise BadListError(f"{entry!r} leaves no {what} on: leave one out of it")
        out |= dict.fromkeys(collectives, left)
    if name == "NCCL_ALGO":
        _every_collective_has_one(out, value)
    return Enabled(tuple(sorted(out.items())))


def write(name: str, enabled: Enabled) -> str:
    """Canonical spelling: the most frequent entry first, then the collectives that differ."""
    known = ALGORITHMS if name == "NCCL_ALGO" else PROTOCOLS
    by_collective = dict(enabled.by_collective)
    sets = [by_collective.get(collective) for collective in COLLECTIVES]
    # An entry without a collective applies to all. Ties go to the first in NCCL's order, which
    # AllReduce ends.
    common = None if None in sets else max(sets, key=sets.count)

    def text(left: frozenset[str]) -> str:
        names = ",".join(word for word in known if word in left)
        return names.lower() if name == "NCCL_ALGO" else names

    entries = [] if common is None else [text(common)]
    entries += [
        f"{collective.lower()}:{text(left)}"
        for collective in COLLECTIVES
        if (left := by_collective.get(collective)) is not None and left != common
    ]
    return ";".join(entries)


def without_any(algorithms: Enabled | None, protocols: Enabled | None) -> str | None:
    """A collective for which both values together enable nothing; `None` if there is none."""
    for collective in COLLECTIVES:
        named = algorithms.of(collective) if algorithms else None
        if named is None:
            continue  # NCCL's choice always includes Ring, which supports every protocol
        allowed = protocols.of(collective) if protocols else None
        pairs = (
            (algorithm, protocol)
            for algorithm, protocol in itertools.product(
                named & HAS[collective], PROTOCOLS if allowed is None else allowed
            )
            if protocol == "Simple" or algorithm not in _SIMPLE_ONLY
        )
        if not any(pairs):
            return collective
    return None


def _entry(entry: str, value: str, index: int, example: str) -> tuple[tuple[str, ...], str]:
    parts = entry.split(":")
    if not all(parts):
        what = f"An entry of {value!r} is empty" if entry == "" else f"{entry!r} is half an entry"
        raise BadListError(f"{what}: {example}, without `;` or `:` at an end")
    if len(parts) > 2:
        raise BadListError(f"{entry!r} has two colons: separate entries with `;`, {example}")
    if len(parts) == 1:
        if index:
            raise BadListError(
                f"{entry!r} names no collective, as only the first entry may: {example}"
            )
        return COLLECTIVES, parts[0]
    return (_known(parts[0], COLLECTIVES, "collective", "NCCL"),), parts[1]


def _known(word: str, known: tuple[str, ...], what: str, name: str) -> str:
    for spelling in known:
        if spelling.lower() == word.lower():
            return spelling
    if word.startswith("^"):
        raise BadListError(
            f"`^` stands once, before the first name, and turns all of them round: not {word!r}"
        )
    if not word:
        raise BadListError("A name between two commas, or after `^`, is missing")
    hint = nearest(word, known)
    if what == "algorithm" and word.lower() == "collnet":
        hint = "NCCL 2.14 and later have CollNetDirect and CollNetChain"
    raise BadListError(f"{name} has no {what} {word!r}; {hint}")


def _every_collective_has_one(enabled: dict[str, frozenset[str]], value: str) -> None:
    lost = [name for name, left in enabled.items() if not left & HAS[name]]
    if not lost:
        return
    reduce_only = ",".join(a.lower() for a in ALGORITHMS if a in enabled.get("AllReduce", ()))
    instead = f"ring,tree;allreduce:{reduce_only}" if "AllReduce" not in lost else "ring,tree"
    raise BadListError(
        f"{value!r} leaves {_words(lost)} no algorithm, and NCCL 2.24 and later stop at the first "
        f"one: write `{instead}`"
    )


def _words(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _example(name: str) -> str:
    return "ring,tree;allreduce:tree" if name == "NCCL_ALGO" else "LL,Simple;allreduce:^LL128"
