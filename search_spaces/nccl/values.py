"""Values that NCCL would ignore, misread or refuse, found before a launch.

NCCL reads numbers with `strtoll` and reports the rest only with `NCCL_DEBUG=INFO`
(`src/misc/param.cc`, 2.24.3 to 2.30.7): `abc` is 0, `4M` is 4, `010` is 8, `true` is 0. Levels are
case-sensitive, and an unknown level counts as not set (`src/graph/paths.cc`, `ncclGetLevel`).
"""

from __future__ import annotations

import difflib
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.nccl.variables import (
    LAST_READ_BY,
    LEVELS,
    NEWEST,
    OLD_LEVELS,
    READ_BY_TORCH,
    VARIABLES,
)
from search_spaces.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from search_spaces.nccl.variables import Variable


_NUMBER = re.compile(r"-?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+)")
_OCTAL = re.compile(r"-?0[0-9]+")
_UNIT = re.compile(r"([0-9]+) *([KMG])i?B?", re.IGNORECASE)
_MULTIPLES = {"K": 2**10, "M": 2**20, "G": 2**30}
_YES = ("true", "yes", "on")
_NO = ("false", "no", "off")


def value_problem(name: str, value: str | None) -> str | None:
    """Return why NCCL would not read a value as written; `None` if it would.

    Args:
        name: Name of the variable. For a variable that NCCL does not read, see `unknown_variable`.
        value: Its text; `None` is not set.
    """
    variable = VARIABLES.get(name)
    if variable is None or value is None:
        return None
    if not value:
        return "An empty value means not set: write null"
    if value != value.strip():
        return f"{value!r} has blanks around it: write {value.strip()!r}"
    return _READERS[variable.kind](variable, value)


def unknown_variable(name: str) -> str | None:
    """Warning about an `NCCL_` variable that NCCL does not read; `None` otherwise."""
    if name in LAST_READ_BY:
        return (
            f"NCCL {LAST_READ_BY[name]} is the last version that reads this variable; newer ones "
            "silently ignore it"
        )
    upper = name.upper()
    if not upper.startswith("NCCL_") or name in VARIABLES or name in READ_BY_TORCH:
        return None
    close = difflib.get_close_matches(upper, VARIABLES, n=1, cutoff=0.75)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    return f"NCCL {NEWEST} does not read this variable (a plugin may){hint}"


def canonical_value(name: str, value: str) -> str:
    """Canonical spelling of a value (`simple,ll` is `LL,Simple`); invalid values stay unchanged.

    Only values that NCCL reads alike are equal. 0 differs from not set, for which NCCL's
    configuration file and SGLang decide.
    """
    variable = VARIABLES.get(name)
    if variable is None or value_problem(name, value) is not None:
        return value
    match variable.kind:
        case "switch" | "number":
            return str(int(value, 0))
        case "level":
            return OLD_LEVELS[min(int(value), 4)] if value.isdigit() else value
        case "words":
            given = value.removeprefix("^").upper().split(variable.joined_by or None)
            words = (variable.joined_by or "").join(w for w in variable.words if w in given)
            return f"^{words}" if value.startswith("^") else words
        case "list":
            return write_list(name, read_list(name, value))
    return value


def _switch(variable: Variable, value: str) -> str | None:
    if value in {"0", "1"}:
        return None
    if value.lower() in _YES:
        return f"NCCL reads {value!r} as 0: write 1"
    if value.lower() in _NO:
        return f"NCCL takes a number only, and reads {value!r} as 0: write 0"
    return f"Must be 0 or 1, not {value!r}" + _own_choice(value, variable)


def _number(variable: Variable, value: str) -> str | None:
    span = f"a whole number from {variable.least} to {variable.most}"
    if _OCTAL.fullmatch(value):
        plain = int(value)
        return f"NCCL reads {value!r}, with a 0 before it, to base 8: write {plain}"
    if unit := _UNIT.fullmatch(value):
        count = int(unit[1]) * _MULTIPLES[unit[2].upper()]
        return f"NCCL reads {value!r} as {int(unit[1])}, without its unit: write {count}"
    if not _NUMBER.fullmatch(value):
        digits = re.match(r"-?[0-9]+", value)
        taken = int(digits[0]) if digits else 0
        return f"NCCL reads {value!r} as {taken}: write {span}, such as {variable.example}"
    number = int(value, 0)
    if not variable.least <= number <= variable.most:
        return f"Must be {span}, not {value}: NCCL would silently use another value" + _own_choice(
            value, variable
        )
    if number % variable.step:
        return (
            f"Must be a multiple of {variable.step}, not {value}: NCCL would silently "
            f"use {variable.most}; write {variable.example}"
        )
    return None


def _own_choice(value: str, variable: Variable) -> str:
    chooses = value in {"-1", "-2"} and variable.least >= 0
    return "; for NCCL's own choice write null" if chooses else ""


def _level(_: Variable, value: str) -> str | None:
    if value in LEVELS or re.fullmatch(r"[0-9]+", value):
        if value.isdigit() and value != str(int(value)):
            return f"Must be the name of a level or a number without a 0 before it, not {value!r}"
        return None
    if value.upper() in LEVELS:
        return f"NCCL knows it in capitals only, and ignores {value!r}: write {value.upper()}"
    hint = nearest(value, LEVELS)
    return f"NCCL knows no level {value!r}, and silently ignores it; {hint}"


def _words(variable: Variable, value: str) -> str | None:
    plain = value.removeprefix("^") if variable.joined_by == "," else value
    words = plain.split(variable.joined_by) if variable.joined_by else [plain]
    for word in words:
        if word.upper() not in variable.words:
            hint = nearest(word, variable.words)
            return f"NCCL knows no {word!r} here, and ignores it; {hint}"
    if variable.capitals and value not in variable.words:
        return f"NCCL knows it in capitals only: write {value.upper()}"
    return None


def _list(variable: Variable, value: str) -> str | None:
    try:
        read_list(variable.name, value)
    except BadListError as error:
        return str(error)
    return None


_READERS: Mapping[str, Callable[[Variable, str], str | None]] = {
    "switch": _switch,
    "number": _number,
    "level": _level,
    "words": _words,
    "list": _list,
    "text": lambda _variable, _value: None,
}


BOUNDS = (
    (("NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS"), ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS")),
    (("NCCL_MIN_P2P_NCHANNELS",), ("NCCL_MAX_P2P_NCHANNELS",)),
)
"""Least and most of one number. The channels of a communicator are at least the larger of the two
minima and at most the smaller of the two maxima; where they cross, NCCL takes one of them and says
so at `NCCL_DEBUG=INFO` at best (`graph/connect.cc:492-505`, `init.cc:2190`, `graph/paths.cc:980`,
2.30.7)."""

_OLD_NAMES = {
    "NCCL_MIN_NRINGS": "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NRINGS": "NCCL_MAX_NCHANNELS",
}
"""Old names with the new names that override them (`graph/connect.cc:334-358`, 2.30.7)."""

BOUNDED = frozenset((*_OLD_NAMES, *(name for least, most in BOUNDS for name in (*least, *most))))
"""Every variable that `crossed_bounds` reads."""


def crossed_bounds(env: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Minima above their maxima, as pairs of variables with a message.

    Args:
        env: Variables that are set, with their values.
    """
    for minima, maxima in BOUNDS:
        least = _extreme(env, minima, largest=True)
        most = _extreme(env, maxima, largest=False)
        if least and most and least[0] > most[0]:
            message = (
                f"{least[1]} {least[0]} is more than {most[1]} {most[0]}: NCCL would silently "
                "ignore one of them"
            )
            yield least[1], most[1], message


def shadowed(env: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Variables that NCCL ignores, each with the variable that overrides it.

    Sources: `graph/paths.cc:244-281` (`ncclGetLevel`), `graph/connect.cc:334-358`, 2.30.7.
    """
    if "NCCL_P2P_LEVEL" in env and env.get("NCCL_P2P_DISABLE") == "1":
        yield "NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE"
    for old, new in _OLD_NAMES.items():
        if old in env and new in env:
            yield old, new


def nothing_left(env: Mapping[str, object]) -> str | None:
    """Why `NCCL_ALGO` and `NCCL_PROTO` together disable a collective; `None` if they do not.

    Source: `graph/tuning.cc:293-304`, `enqueue.cc:2052-2065`, 2.30.7; `enqueue.cc:1656`, 2.24.3.
    """
    enabled: dict[str, Enabled] = {}
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        value = env.get(name)
        if isinstance(value, str) and value and value_problem(name, value) is None:
            enabled[name] = read_list(name, value)
    lost = unusable_collective(enabled.get("NCCL_ALGO"), enabled.get("NCCL_PROTO"))
    if lost is None:
        return None
    return (
        f"NCCL_ALGO {env['NCCL_ALGO']} and NCCL_PROTO {env['NCCL_PROTO']} leave {lost} nothing, "
        "and NCCL stops at the first one"
    )


def _extreme(
    env: Mapping[str, object], names: tuple[str, ...], *, largest: bool
) -> tuple[int, str] | None:
    found = []
    for name in names:
        old = next((o for o, new in _OLD_NAMES.items() if new == name), name)
        actual = name if name in env else old
        value = env.get(actual)
        if isinstance(value, str) and value_problem(actual, value) is None:
            found.append((int(value, 0), actual))
    if not found:
        return None
    return max(found) if largest else min(found)


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


def read_list(name: str, value: str) -> Enabled:
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
        raise BadListError(f"{value!r} has blanks, which NCCL reads as part of the name: remove "
                           "them")  # fmt: skip
    for index, entry in enumerate(value.split(";")):
        collectives, names = _entry(entry, value, index, example)
        if not named.isdisjoint(collectives) and index:
            twice = next(iter(named & set(collectives)))
            raise BadListError(
                f"{twice} is repeated in {value!r}, and NCCL uses the last one: keep one"
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


def write_list(name: str, enabled: Enabled) -> str:
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


def unusable_collective(algorithms: Enabled | None, protocols: Enabled | None) -> str | None:
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
            f"Write `^` once, before the first name, to invert the whole entry; not before {word!r}"
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
        f"{value!r} leaves {_and(lost)} no algorithm, and NCCL 2.24 and later stop at the first "
        f"one: write `{instead}`"
    )


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _example(name: str) -> str:
    return "ring,tree;allreduce:tree" if name == "NCCL_ALGO" else "LL,Simple;allreduce:^LL128"
