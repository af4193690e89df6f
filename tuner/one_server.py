"""Whether a state that a server was switched to agrees with the one that it was started in. Pure.

An anchor is checked against a launch of its own once per drafter. This asks the same of every
switched launch, and needs no other: the state that SGLang built itself is measured first, and the
others run the same graphs, and look at no more tokens per verify than that one does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.faithful import CYCLE_SHARE, DRAFT_TIME, GRAPH_SHARE, LEAST_S, low_of, met_in, usual_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from results.records import BatchCycles, Measurement

VERIFY_TIME = 0.10
"""How much longer a verify of no more tokens may take, of 1."""


def at_odds(
    started: Sequence[Measurement],
    switched: Sequence[Measurement],
    *,
    drafts: bool,
    on_gpu: bool,
) -> str | None:
    """Why a switched state is not of the server that it was built in; `None`: nothing says so.

    Args:
        started: Windows of the state that the server was started in, one per operating point.
        switched: Of another state of it, with no more steps and draft tokens, at the same points.
        drafts: Whether that one has draft forwards (two steps or more).
        on_gpu: Whether GPUs do the work, so that times mean something.
    """
    for first, then in zip(started, switched, strict=True):
        if first.cycle is None or then.cycle is None or first.cycle.source != then.cycle.source:
            continue
        theirs = {batch.size: batch for batch in met_in(then.cycle)}
        for batch in met_in(first.cycle):
            if (other := theirs.get(batch.size)) is None:
                continue
            found = [*_by_graphs(batch, other, drafts=drafts)]
            found += _by_time(batch, other) if on_gpu else []
            if found:
                at = f"{first.point.name}, batch {batch.size}" if batch.size else first.point.name
                return f"{'; '.join(found)} at {at}"
    return None


def _by_graphs(started: BatchCycles, switched: BatchCycles, *, drafts: bool) -> Iterator[str]:
    for name in ("draft", "draft_extend", "verify") if drafts else ("draft_extend", "verify"):
        a, b = started.parts.get(name), switched.parts.get(name)
        shares = [one.graph_share for one in (a, b) if one is not None and one.count]
        if len(shares) == 2 and None not in shares:
            own, there = (float(share or 0) for share in shares)
            if abs(own - there) > GRAPH_SHARE:
                yield f"graphs of {name}: {own:.0%} as started, {there:.0%} switched"


def _by_time(started: BatchCycles, switched: BatchCycles) -> Iterator[str]:
    cycle = usual_of(started.cycle) if started.cycle.count else 0.0
    for name in ("draft", "draft_extend", "verify"):
        a, b = started.parts.get(name), switched.parts.get(name)
        if a is None or b is None or not a.count or not b.count:
            continue
        own, there = low_of(a), low_of(b)
        more = VERIFY_TIME * own if name == "verify" else max(DRAFT_TIME * own, CYCLE_SHARE * cycle)
        if there > own + max(more, LEAST_S):
            yield f"{name} takes {1e3 * own:.3g} ms as started, {1e3 * there:.3g} ms switched"
