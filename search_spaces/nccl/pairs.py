"""NCCL variables that contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.nccl import lists
from search_spaces.nccl.values import value_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
                f"{least[1]} {least[0]} is more than {most[1]} {most[0]}: NCCL would ignore one of "
                "them in silence"
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
    enabled: dict[str, lists.Enabled] = {}
    for name in ("NCCL_ALGO", "NCCL_PROTO"):
        value = env.get(name)
        if isinstance(value, str) and value and value_problem(name, value) is None:
            enabled[name] = lists.read(name, value)
    lost = lists.without_any(enabled.get("NCCL_ALGO"), enabled.get("NCCL_PROTO"))
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
