"""Compare settings of one switched server with a checked setting of the same server. Pure.

The reference run is compared with its separate launch once per drafter (`faithful`). The comparison
here runs in every switched launch. The checked setting is the setting of the start, which SGLang
built itself, or the reference run.

Both settings must run the same parts with the same share of CUDA graphs. A forward has a fixed cost
and a cost per token, so the time of a part lies between constant and proportional to steps and
tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.hot_switch.faithful import (
    CYCLE_SHARE,
    DRAFT_TIME,
    GRAPH_SHARE,
    LEAST_S,
    common_batches,
    fast_s,
    typical_s,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from results.records import BatchCycles, Measurement
    from search_spaces.configuration import Setting

VERIFY_TIME = 0.10
"""Relative tolerance of verify time beyond these bounds."""


@dataclass(frozen=True, slots=True)
class State:
    """A setting of a switched server and its windows, one per operating point."""

    setting: Setting
    windows: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True)
class StateComparison:
    """Result of comparing two settings of one server.

    Attributes:
        difference: Difference that is not explained by steps and tokens; `None`: there is none.
        unknown: Why an operating point could not be compared; `None`: all were compared, or neither
            setting has cycle times.
    """

    difference: str | None = None
    unknown: str | None = None


def compare_states(reference: State, state: State, *, on_gpu: bool) -> StateComparison:
    """Compare a setting with a checked setting of the same server.

    Args:
        reference: The checked setting.
        state: The other setting, measured at the same operating points.
        on_gpu: Whether a GPU runs the model. Without one, times are not compared.
    """
    unknown = None
    for first, then in zip(reference.windows, state.windows, strict=True):
        at = first.point.name
        if first.cycle is None and then.cycle is None:
            continue
        if first.cycle is None or then.cycle is None or first.cycle.source != then.cycle.source:
            unknown = unknown or f"only one of the two settings has cycle times at {at}"
            continue
        both = common_batches(first.cycle, then.cycle)
        if not both:
            unknown = unknown or f"no batch size occurred often enough at {at}"
        for batch, other in both:
            found = [*_by_graphs(batch, other, reference.setting, state.setting)]
            if on_gpu:
                found += _by_time(batch, other, reference.setting, state.setting)
            if found:
                where = f"{at}, batch {batch.size}" if batch.size else at
                return StateComparison(f"{'; '.join(found)} at {where}")
    return StateComparison(unknown=unknown)


def _by_graphs(
    reference: BatchCycles, state: BatchCycles, known: Setting, other: Setting
) -> Iterator[str]:
    # Draft extend makes the draft of the first step, so one step has no draft forwards.
    drafts = min(known.size[0], other.size[0]) > 1
    for name in ("draft", "draft_extend", "verify") if drafts else ("draft_extend", "verify"):
        a, b = reference.parts.get(name), state.parts.get(name)
        if a is None or not a.count:
            continue
        if b is None or not b.count:
            yield f"{name} is missing, but exists at {known} steps"
            continue
        checked, switched = a.graph_share, b.graph_share
        if checked is not None and switched is not None and abs(checked - switched) > GRAPH_SHARE:
            yield f"{name} runs {switched:.0%} as CUDA graphs, but {checked:.0%} at {known} steps"


def _by_time(
    reference: BatchCycles, state: BatchCycles, known: Setting, other: Setting
) -> Iterator[str]:
    cycle = typical_s(reference.cycle) if reference.cycle.count else 0.0
    for name in ("draft", "draft_extend", "verify"):
        a, b = reference.parts.get(name), state.parts.get(name)
        if a is None or b is None or not a.count or not b.count:
            continue
        checked_s, other_s = fast_s(a), fast_s(b)
        least, most = (factor * checked_s for factor in _bounds(name, known, other))
        allowed = max(VERIFY_TIME if name == "verify" else DRAFT_TIME, LEAST_S / checked_s)
        if name != "verify":
            allowed = max(allowed, CYCLE_SHARE * cycle / checked_s)
        if not least / (1 + allowed) <= other_s <= most * (1 + allowed):
            yield (
                f"{name} takes {1e3 * other_s:.3g} ms, but {1e3 * checked_s:.3g} ms at {known} "
                "steps"
            )


def _bounds(name: str, known: Setting, other: Setting) -> tuple[float, float]:
    """Lowest and highest time of a part, relative to the checked setting, without tolerance.

    Draft has one forward per step after the first. Draft extend is as wide as the steps or the
    draft tokens, depending on the version.
    """
    steps, tokens = (b / a for a, b in zip(known.size, other.size, strict=True))
    forwards = (other.size[0] - 1) / max(1, known.size[0] - 1)
    grows = {"draft": (forwards, tokens), "draft_extend": (steps, tokens), "verify": (tokens,)}[
        name
    ]
    return min(1.0, *grows), max(1.0, *grows)
