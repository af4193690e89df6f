"""Whether the states of one switched server agree with one of them that is known to be right. Pure.

An anchor is checked against a launch of its own once per drafter. This is asked in every switched
launch: each state is held against a reference in the same server, the one that SGLang built itself
when it started or an anchor that was found the same. It runs the same graphs, and what a part of it
takes lies between what it would take if time did not depend on steps and tokens at all, and if it
grew with them in proportion: a forward has a fixed cost and one per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.hot_switch.faithful import (
    CYCLE_SHARE,
    DRAFT_TIME,
    GRAPH_SHARE,
    LEAST_S,
    in_common,
    low_of,
    usual_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.records import BatchCycles, Measurement
    from search_spaces.configuration import Setting

VERIFY_TIME = 0.10
"""How far beyond those bounds a verify may be, of 1."""


@dataclass(frozen=True, slots=True)
class State:
    """A setting of a switched server, and its windows there, one per operating point."""

    setting: Setting
    windows: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """What one state beside another has shown.

    Attributes:
        odds: Why they are not of one server; `None`: nothing says so.
        untold: Why that is not known of some operating point; `None`: of none. Where neither has a
            clock nothing can be known, and it is not asked for.
    """

    odds: str | None = None
    untold: str | None = None


def held_against(reference: State, state: State, *, on_gpu: bool) -> Held:
    """Compares a state of a switched server with a reference.

    Args:
        reference: Is known to be right.
        state: Another one of the same server, at the same operating points.
        on_gpu: Whether GPUs do the work, so that times mean something.
    """
    untold = None
    for first, then in zip(reference.windows, state.windows, strict=True):
        at = first.point.name
        if first.cycle is None and then.cycle is None:
            continue
        if first.cycle is None or then.cycle is None or first.cycle.source != then.cycle.source:
            untold = untold or f"only one of the two settings has cycle times at {at}"
            continue
        both = in_common(first.cycle, then.cycle)
        if not both:
            untold = untold or f"no batch size occurred often enough at {at}"
        for batch, other in both:
            found = [*_by_graphs(batch, other, reference.setting, state.setting)]
            if on_gpu:
                found += _by_time(batch, other, reference.setting, state.setting)
            if found:
                where = f"{at}, batch {batch.size}" if batch.size else at
                return Held(f"{'; '.join(found)} at {where}")
    return Held(untold=untold)


def _by_graphs(
    reference: BatchCycles, state: BatchCycles, known: Setting, other: Setting
) -> Iterator[str]:
    # The first step's draft comes out of draft extend: one step has no draft forwards.
    drafts = min(known.size[0], other.size[0]) > 1
    for name in ("draft", "draft_extend", "verify") if drafts else ("draft_extend", "verify"):
        a, b = reference.parts.get(name), state.parts.get(name)
        if a is None or not a.count:
            continue
        if b is None or not b.count:
            yield f"{name} is missing, but exists at {known} steps"
            continue
        own, there = a.graph_share, b.graph_share
        if own is not None and there is not None and abs(own - there) > GRAPH_SHARE:
            yield f"{name} runs {there:.0%} as CUDA graphs, but {own:.0%} at {known} steps"


def _by_time(
    reference: BatchCycles, state: BatchCycles, known: Setting, other: Setting
) -> Iterator[str]:
    cycle = usual_of(reference.cycle) if reference.cycle.count else 0.0
    for name in ("draft", "draft_extend", "verify"):
        a, b = reference.parts.get(name), state.parts.get(name)
        if a is None or b is None or not a.count or not b.count:
            continue
        own, there = low_of(a), low_of(b)
        least, most = (factor * own for factor in _bounds(name, known, other))
        allowed = max(VERIFY_TIME if name == "verify" else DRAFT_TIME, LEAST_S / own)
        if name != "verify":
            allowed = max(allowed, CYCLE_SHARE * cycle / own)
        if not least / (1 + allowed) <= there <= most * (1 + allowed):
            yield f"{name} takes {1e3 * there:.3g} ms, but {1e3 * own:.3g} ms at {known} steps"


def _bounds(name: str, known: Setting, other: Setting) -> tuple[float, float]:
    """Between what shares of its time there a part may be, before anything is allowed for.

    Draft has a forward for each step but the first. Draft extend is as wide as the steps or as the
    draft tokens, by the version.
    """
    steps, tokens = (b / a for a, b in zip(known.size, other.size, strict=True))
    forwards = (other.size[0] - 1) / max(1, known.size[0] - 1)
    grows = {"draft": (forwards, tokens), "draft_extend": (steps, tokens), "verify": (tokens,)}[
        name
    ]
    return min(1.0, *grows), max(1.0, *grows)
